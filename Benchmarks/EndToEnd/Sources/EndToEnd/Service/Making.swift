/// Contents that cost a fixed amount of computation, the same for an id each time.
enum Making {
    /// Bytes of a picture.
    static let pictureSize = 40 << 10
    /// Bytes of a session.
    static let sessionSize = 2 << 10

    // Some 2 ms and 6 ms of processor time (`e2e-bench cost`). Each step waits for the one before, so that no processor
    // performs several at once.
    private static let picturePasses = 220
    private static let sessionPasses = 13_400

    /// Makes the picture `id`.
    static func picture(_ id: Int) -> [UInt8] { bytes(id, count: pictureSize, passes: picturePasses) }

    /// Makes the session `id`.
    static func session(_ id: Int) -> [UInt8] { bytes(id &+ 1 << 32, count: sessionSize, passes: sessionPasses) }

    private static func bytes(_ id: Int, count: Int, passes: Int) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            var state = UInt64(bitPattern: Int64(id)) &* 0x9E37_79B9_7F4A_7C15 | 1
            buffer.withMemoryRebound(to: UInt64.self) { words in
                words.initialize(repeating: 0)
                for _ in 0..<passes {
                    for index in words.indices {
                        state ^= state >> 29
                        state = state &* 0xBF58_476D_1CE4_E5B9
                        state ^= state >> 32
                        words[index] ^= state
                    }
                }
            }
            initialized = count
        }
    }
}

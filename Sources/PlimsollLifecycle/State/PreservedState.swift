/// The format in which an item of preserved state passes bytes to a store.
enum PreservedState {
    private static let magic: [UInt8] = Array("PSV1".utf8)

    /// Returns the bytes with a header that holds the program's version.
    static func wrap(_ bytes: [UInt8], version: Int) -> [UInt8] {
        var wrapped: [UInt8] = []
        wrapped.reserveCapacity(8 + bytes.count)
        wrapped += magic
        append(UInt32(clamping: version), to: &wrapped)
        wrapped += bytes
        return wrapped
    }

    /// Returns the bytes and the version; `nil` for bytes that `wrap` has not made.
    static func unwrap(_ wrapped: [UInt8]) -> (bytes: [UInt8], version: Int)? {
        guard wrapped.count >= 8, wrapped.starts(with: magic) else { return nil }
        return (Array(wrapped[8...]), Int(number(wrapped, 4)))
    }

    /// Joins consecutive changes into one, which is stored as a whole or not at all.
    static func join(_ deltas: [[UInt8]]) -> [UInt8] {
        var joined: [UInt8] = []
        joined.reserveCapacity(deltas.reduce(0) { $0 + 4 + $1.count })
        for delta in deltas {
            append(UInt32(delta.count), to: &joined)
            joined += delta
        }
        return joined
    }

    /// Returns the changes; `nil` for bytes that `join` has not made.
    static func split(_ joined: [UInt8]) -> [[UInt8]]? {
        var deltas: [[UInt8]] = []
        var offset = 0
        while offset < joined.count {
            guard joined.count - offset >= 4 else { return nil }
            let length = Int(number(joined, offset))
            offset += 4
            guard length <= joined.count - offset else { return nil }
            deltas.append(Array(joined[offset..<offset + length]))
            offset += length
        }
        return deltas
    }

    /// Returns a hash that distinguishes states within this process. The hash has 64 bits and a new key in each
    /// process, so no collisions occur in practice.
    static func hash(_ bytes: [UInt8]) -> Int {
        var hasher = Hasher()
        bytes.withUnsafeBytes { hasher.combine(bytes: $0) }
        return hasher.finalize()
    }

    private static func append(_ number: UInt32, to bytes: inout [UInt8]) {
        withUnsafeBytes(of: number.littleEndian) { bytes.append(contentsOf: $0) }
    }

    private static func number(_ bytes: [UInt8], _ offset: Int) -> UInt32 {
        (0..<4).reduce(0) { $0 | UInt32(bytes[offset + $1]) << UInt32(8 * $1) }
    }
}

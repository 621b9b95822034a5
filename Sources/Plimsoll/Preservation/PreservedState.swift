/// What an item of preserved state wraps its bytes in before a store gets them.
enum PreservedState {
    private static let magic: [UInt8] = Array("PSV1".utf8)

    /// The whole, with the program's own version of it.
    static func wrap(_ bytes: [UInt8], version: Int) -> [UInt8] {
        var wrapped: [UInt8] = []
        wrapped.reserveCapacity(8 + bytes.count)
        wrapped += magic
        append(UInt32(clamping: version), to: &wrapped)
        wrapped += bytes
        return wrapped
    }

    /// `nil` for what `wrap` has not made.
    static func unwrap(_ wrapped: [UInt8]) -> (bytes: [UInt8], version: Int)? {
        guard wrapped.count >= 8, wrapped.starts(with: magic) else { return nil }
        return (Array(wrapped[8...]), Int(number(wrapped, 4)))
    }

    /// Changes made one after another, as one that is there or not.
    static func join(_ deltas: [[UInt8]]) -> [UInt8] {
        var joined: [UInt8] = []
        joined.reserveCapacity(deltas.reduce(0) { $0 + 4 + $1.count })
        for delta in deltas {
            append(UInt32(delta.count), to: &joined)
            joined += delta
        }
        return joined
    }

    /// `nil` for what `join` has not made.
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

    /// Tells states apart within this process: 64 bits, keyed anew in each process, so that no two that differ have one in common in practice.
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

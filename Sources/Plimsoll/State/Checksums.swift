/// The checksum CRC-32C (Castagnoli), computed eight bytes at a step.
///
/// In data shorter than 2^31 bits, detects every error of one, two or three bits and every burst of up to 32 bits.
/// Misses one in 2^32 of all other errors.
package struct CRC32C {
    private var register: UInt32 = .max

    /// `tables[256 * n + byte]`: the effect of a byte on the register when `n` more bytes follow.
    private static let tables: [UInt32] = {
        var tables = [UInt32](repeating: 0, count: 8 * 256)
        for byte in 0..<256 {
            var value = UInt32(byte)
            for _ in 0..<8 { value = value & 1 == 1 ? value >> 1 ^ 0x82f6_3b78 : value >> 1 }
            tables[byte] = value
        }
        for index in 256..<tables.count {
            tables[index] = tables[index - 256] >> 8 ^ tables[Int(tables[index - 256] & 255)]
        }
        return tables
    }()

    package init() {}

    /// The checksum of all bytes added so far.
    package var value: UInt32 { ~register }

    package mutating func add(_ bytes: UnsafeRawBufferPointer) {
        var register = register
        var offset = 0
        Self.tables.withUnsafeBufferPointer { tables in
            while offset + 8 <= bytes.count {
                let word =
                    UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
                    ^ UInt64(register)
                register = 0
                for step in 0..<8 {
                    register ^= tables[256 * (7 - step) + Int(truncatingIfNeeded: word >> UInt64(8 * step) & 255)]
                }
                offset += 8
            }
            while offset < bytes.count {
                register = tables[Int((register ^ UInt32(bytes[offset])) & 255)] ^ register >> 8
                offset += 1
            }
        }
        self.register = register
    }

    package mutating func add(_ number: some FixedWidthInteger) {
        withUnsafeBytes(of: number.littleEndian) { add($0) }
    }

    package static func checksum(_ bytes: [UInt8]) -> UInt32 {
        var sum = CRC32C()
        bytes.withUnsafeBytes { sum.add($0) }
        return sum.value
    }
}

/// FNV-1a with 64 bits (Fowler, Noll, Vo). Detects accidents and spreads names; no defence against malice.
package struct FNV1a: Sendable {
    /// The hash of all bytes added so far.
    package private(set) var hash: UInt64 = 0xcbf2_9ce4_8422_2325

    package init() {}

    package mutating func add(_ byte: UInt8) { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }

    package static func hash(_ bytes: some Sequence<UInt8>) -> UInt64 {
        bytes.reduce(into: FNV1a()) { $0.add($1) }.hash
    }
}

/// The random number generator SplitMix64 (Steele et al., OOPSLA 2014).
package struct SplitMix64: RandomNumberGenerator, Sendable {
    private var state: UInt64

    package init(state: UInt64) { self.state = state }

    package mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        return Self.mixed(state)
    }

    /// Returns the last step of the generator: spreads the bits of `word`.
    package static func mixed(_ word: UInt64) -> UInt64 {
        var word = (word ^ (word >> 30)) &* 0xbf58_476d_1ce4_e5b9
        word = (word ^ (word >> 27)) &* 0x94d0_49bb_1331_11eb
        return word ^ (word >> 31)
    }
}

import Plimsoll
import PlimsollTesting
import Synchronization

/// A `VolatileCache` with values of several sizes. Each word identifies the key, the write and the word's position.
final class TorturedCache: Tortured {
    private let cache = VolatileCache<UInt64, [UInt8]>("tortured")
    private let keys: UInt64
    private let writings = Atomic<UInt64>(0)
    private static let page = 4096
    private static let sizes = [16, 104, 1000, 4096, 104, 12_000, 1000, 64 << 10]

    /// Creates a cache of about `total` bytes.
    init(total: ByteCount) {
        keys = UInt64(total.bytes / (Self.sizes.reduce(0, +) / Self.sizes.count))
        for key in 0..<keys { write(key) }
    }

    func read(_ random: inout SeededGenerator) -> Torture.Tally {
        let key = UInt64.random(in: 0..<keys, using: &random)
        // Now and then rewrite a value, so that the log moves on and old places are used again.
        if UInt64.random(in: 0..<16, using: &random) == 0 { write(key) }
        let found = cache.withBytes(forKey: key) { bytes in
            Torture.Tally(
                reads: (bytes.byteCount + Self.page - 1) / Self.page, wrongBytes: Self.wrongBytes(bytes, of: key))
        }
        if let found { return found }
        write(key)
        return Torture.Tally(dropped: 1)
    }

    func reclaim(_ random: inout SeededGenerator) {
        // A few pages here and there; once in a while nearly everything, as in a burst.
        let isBurst = UInt64.random(in: 0..<1000, using: &random) == 0
        var generator = random
        cache.reclaim { _, _ in UInt64.random(in: 0..<1000, using: &generator) < (isBurst ? 900 : 2) }
        random = generator
    }

    private func write(_ key: UInt64) {
        let writing = writings.wrappingAdd(1, ordering: .relaxed).newValue
        let count = Self.sizes[Int(key % UInt64(Self.sizes.count))]
        let value = [UInt8](unsafeUninitializedCapacity: count) { buffer, written in
            let words = UnsafeMutableRawBufferPointer(buffer).bindMemory(to: UInt64.self)
            words[0] = writing
            for index in 1..<words.count { words[index] = Self.word(key, writing, index) }
            written = count
        }
        cache.insert(value, forKey: key)
    }

    private static func word(_ key: UInt64, _ writing: UInt64, _ index: Int) -> UInt64 {
        (key << 40 ^ writing << 16 ^ UInt64(index)) &* 0x9e37_79b9_7f4a_7c15 | 1 << 63
    }

    private static func wrongBytes(_ bytes: RawSpan, of key: UInt64) -> Int {
        bytes.withUnsafeBytes { bytes in
            let words = bytes.bindMemory(to: UInt64.self)
            guard bytes.count == sizes[Int(key % UInt64(sizes.count))] else { return max(8, bytes.count) }
            let writing = words[0]
            var wrong = writing == 0 ? 8 : 0
            for index in 1..<words.count where words[index] != word(key, writing, index) { wrong += 8 }
            return wrong
        }
    }
}

/// Alternates between buffers and a cache.
struct TorturedBoth: Tortured {
    private let buffers: TorturedBuffers
    private let cache: TorturedCache

    init(total: ByteCount) {
        buffers = TorturedBuffers(total: total * 0.5)
        cache = TorturedCache(total: total * 0.5)
    }

    func read(_ random: inout SeededGenerator) -> Torture.Tally {
        Bool.random(using: &random) ? buffers.read(&random) : cache.read(&random)
    }

    func reclaim(_ random: inout SeededGenerator) {
        if Bool.random(using: &random) { buffers.reclaim(&random) } else { cache.reclaim(&random) }
    }
}

import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Volatile caches without more room, for each possible reason: an insert always returns, and a refused insert evicts
/// nothing in vain.
@Suite(.serialized, .timeLimit(.minutes(5))) struct VolatileBoundTests {
    private static func cache(_ meter: ChargeMeter? = nil, limit: ByteCount? = nil) -> VolatileCache<UInt64, [UInt8]> {
        let cache = VolatileCache<UInt64, [UInt8]>("bounded", limit: limit)
        if let meter { cache.attach(volatile: meter) }
        return cache
    }

    private static func value(_ count: Int) -> [UInt8] { [UInt8](repeating: 7, count: count) }

    @Test(arguments: [0, 4096, 30_000, 65_535, 65_536, 70_000, 131_072], [100, 20_000, 60_000, 65_400, 100_000, 300_000])
    func `an insert ends with any ceiling, and a refused insert evicts nothing`(ceiling: Int, size: Int) {
        let meter = ChargeMeter {}
        let cache = Self.cache(meter)
        #expect(cache.insert(Self.value(60_000), forKey: 1))
        let held = cache.heldBytes
        meter.allow(ByteCount(ceiling), since: .zero)
        if cache.insert(Self.value(size), forKey: 2) {
            #expect(cache.value(forKey: 2)?.count == size && meter.heldBytes.bytes <= max(held, ceiling))
        } else {
            #expect(cache.value(forKey: 1)?.count == 60_000 && cache.heldBytes == held)
        }
        #expect(meter.heldBytes.bytes >= cache.heldBytes)
    }

    @Test(arguments: [0, 1, 3]) func `a cache without room to grow replaces entries, and keeps its size at any number of readings`(hits: Int) {
        let meter = ChargeMeter(wakesWhenRefusing: false) {}
        let cache = Self.cache(meter)
        for key in 0..<200 as Range<UInt64> { cache.insert(Self.value(100_000), forKey: key) }
        let held = meter.heldBytes.bytes
        #expect(held > 18 << 20 && held == cache.heldBytes)
        for key in 200..<2000 as Range<UInt64> {
            // Acts as a turn of the loop while memory is short: no holder may take more than the held bytes.
            meter.allow(.zero, since: meter.heldBytes)
            #expect(cache.insert(Self.value(100_000), forKey: key))
            // A value that is requested again is copied forward when its turn comes.
            for hit in 0..<hits { _ = cache.value(forKey: key - UInt64(hit * 20)) }
            #expect(meter.heldBytes.bytes == held && cache.heldBytes > held - 3 << 20 && cache.heldBytes < held + 4 << 20)
        }
        // A requested release still gives memory back, including spare pages.
        #expect(cache.release(6 << 20) >= 6 << 20 && meter.heldBytes.bytes <= held - 2 << 20)
        #expect(cache.release(1000 << 20) > .zero && meter.heldBytes == .zero && cache.heldBytes == .zero)
    }

    @Test func `after each release the meter counts the bytes that the cache holds, exactly`() {
        let meter = ChargeMeter {}
        let cache = Self.cache(meter)
        for key in 0..<300 as Range<UInt64> { cache.insert(Self.value(70_000), forKey: key) }
        while cache.heldBytes > 0 {
            #expect(cache.release(1 << 20) > 0)
            #expect(meter.heldBytes.bytes == cache.heldBytes)
        }
    }

    @Test func `room that another purgeable takes between check and reservation ends an insert`() {
        let meter = AtomicLazyReference<ChargeMeter>()
        let own = meter.storeIfNil(ChargeMeter { meter.load()?.allow(.zero, since: .zero) })
        let cache = Self.cache(own)
        #expect(cache.insert(Self.value(60_000), forKey: 1))
        // The room suffices if all entries are evicted. But the first refusal rings, and the listener takes all the
        // room away.
        own.allow(.kibibytes(220), since: .zero)
        #expect(!cache.insert(Self.value(200_000), forKey: 2))
        #expect(cache.heldBytes == .zero && own.heldBytes == .zero, "a cache that holds nothing claims nothing")
    }

    @Test func `the rest of the main queue is evicted for a new entry, although no entry there counts any more`() {
        let cache = Self.cache()
        cache.insert(Self.value(50_000), forKey: 1)
        #expect(cache.value(forKey: 1) != nil)
        cache.restrict(to: .kibibytes(128))
        for key in 2..<40 {
            #expect(cache.insert(Self.value(50_000), forKey: UInt64(key)))
            #expect(cache.value(forKey: UInt64(key)) != nil && cache.heldBytes <= ByteCount.kibibytes(128 + 64).bytes)
        }
        #expect(cache.insert(Self.value(120_000), forKey: 40) && cache.value(forKey: 40)?.count == 120_000)
    }

    @Test(arguments: seeds(0..<40)) func `randomly moving bounds stall no insert`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let meter = ChargeMeter(wakesWhenRefusing: false) {}
        let cache = Self.cache(Bool.random(using: &random) ? meter : nil)
        func bound() -> ByteCount { .kibibytes(1 << Int.random(in: 0...13, using: &random)) }
        for _ in 0..<2000 {
            let key = UInt64.random(in: 0..<100, using: &random)
            switch Int.random(in: 0..<20, using: &random) {
            case 0: meter.allow(Bool.random(using: &random) ? .zero : bound(), since: meter.heldBytes)
            case 1: meter.allow(bound(), since: .zero)
            case 2: cache.restrict(to: Bool.random(using: &random) ? ByteCount(cache.heldBytes) : bound())
            case 3: cache.restrict(to: nil)
            case 4: #expect(cache.release(bound().bytes) >= 0)
            case 5...9: _ = cache.value(forKey: key)
            default: cache.insert(Self.value(Int.random(in: 0...(key < 3 ? 1 << 20 : 128 << 10), using: &random)), forKey: key)
            }
        }
        if meter.heldBytes > .zero { #expect(abs(meter.heldBytes.bytes - cache.heldBytes) <= 4 << 20, "two segments at most") }
        cache.removeAll()
        #expect(meter.heldBytes == .zero && cache.heldBytes == .zero)
    }
}

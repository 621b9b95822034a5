import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

@Suite struct SizingTests {
    private func cache(_ misses: [(Int, Double)], loadTime: Double = 1e6, isReliable: Bool = true) -> Division.Holder {
        let curve = MissCurve(requests: 100, points: misses.map { .init(bytes: $0.0, misses: $0.1) }, isReliable: isReliable)
        return Division.Holder(held: 0, curve: curve, loadTime: loadTime)
    }

    // The cache has 100 KiB, and each KiB saves one request of a hundred.
    @Test(arguments: [(0.0, 100), (0.01, 99), (0.1, 90), (0.5, 50), (1, 0), (7, 0), (-1, 100)])
    func `a single cache loses memory in proportion to the accepted loss`(loss: Double, kibibytes: Int) {
        let bytes = Sizing.leastBytes([cache([(100 << 10, 0)])], losing: loss)
        #expect(abs(bytes - kibibytes << 10) <= (100 << 10) / Sizing.steps + 64, "\(bytes)")
    }

    @Test func `memory that saves no load is not counted as needed`() {
        // Only the first 10 of 100 KiB save anything.
        let bytes = Sizing.leastBytes([cache([(10 << 10, 20), (100 << 10, 20)])], losing: 0)
        #expect(bytes >= 10 << 10 - 256 && bytes <= 11 << 10)
    }

    @Test func `the cache with cheaper loads gives memory up first`() {
        let cheap = cache([(100 << 10, 0)], loadTime: 1e3), dear = cache([(100 << 10, 0)], loadTime: 1e6)
        // The expensive cache keeps all its memory, because the cheap cache has a thousandth of the load time.
        let bytes = Sizing.leastBytes([cheap, dear], losing: 0.01)
        #expect(bytes >= 96 << 10 && bytes <= 104 << 10, "\(bytes)")
        #expect(Sizing.leastBytes([dear, dear], losing: 0) > 190 << 10)
    }

    @Test func `a loop needs all of its size, or nothing`() {
        let loop = cache([(80 << 10, 100), (81 << 10, 1), (100 << 10, 1)])
        for loss in [0, 0.1, 0.5] { #expect(abs(Sizing.leastBytes([loop], losing: loss) - 81 << 10) < 2 << 10) }
    }

    @Test func `caches without a reliable curve give no size`() {
        #expect(Sizing.leastBytes([], losing: 0) == 0)
        #expect(Sizing.leastBytes([cache([(100, 0)], isReliable: false), cache([])], losing: 0) == 0)
    }

    @Test(arguments: seeds(0..<4))
    func `more loss never needs more memory, for any curve`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let sizes = [0, 1, 64, 4096, 1 << 20, 1 << 50, .max]
        for _ in 0..<20 {
            let caches = (0..<Int.random(in: 1...4, using: &random)).map { _ in
                cache(
                    (0..<8).map { _ in (sizes.randomElement(using: &random)!, Double.random(in: 0...100, using: &random)) },
                    loadTime: [0, 1, 1e6, .infinity, .nan].randomElement(using: &random)!)
            }
            let bytes = [0, 0.01, 0.05, 0.1, 1].map { Sizing.leastBytes(caches, losing: $0) }
            #expect(zip(bytes, bytes.dropFirst()).allSatisfy { $0 >= $1 } && bytes.allSatisfy { $0 >= 0 }, "\(bytes)")
        }
    }

    @Test(arguments: [(800, 1000), (0, 0), (-5, 0), (8 << 30, 9 << 30)])
    func `the limit leaves what is needed below the warning line`(needed: Int, limit: Int) {
        let found = Sizing.limit(needed: ByteCount(needed))
        #expect(found == ByteCount(limit))
        #expect(found - PressureThresholds.standard.warningMargin.below(found) >= ByteCount(max(0, needed)))
    }
}

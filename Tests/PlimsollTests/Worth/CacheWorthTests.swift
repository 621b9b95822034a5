import Testing

@testable import Plimsoll

@Suite struct CacheWorthTests {
    /// Returns the worth of a cache with a hundred requests a second. The requests miss 80 % at 16 MiB, 50 % at 80 MiB
    /// and 10 % at 160 MiB. A load takes 20 ms.
    static func worth(share: Int) -> CacheWorth {
        let curve = MissCurve(
            requests: 1000,
            points: [.init(bytes: 16 << 20, misses: 800), .init(bytes: 80 << 20, misses: 500), .init(bytes: 160 << 20, misses: 100)])
        return CacheWorth(curve: curve, share: share, target: share, requestsPerSecond: 100, loadTime: 2e7)
    }

    // Shares and changes in MiB.
    @Test(
        arguments: [
            (0, 0, 0), (16, 64, 30), (80, -64, -30), (80, 80, 40), (160, 1024, 0), (16, -64, -20), (160, -1024, -90),
        ] as [(Int, Int, Double)])
    func `a change of the share changes the hits as the curve predicts`(share: Int, change: Int, hits: Double) {
        #expect(abs(Self.worth(share: share << 20).hitsPerSecond(from: change << 20) - hits) < 1e-9)
    }

    @Test func `extreme changes of the share change no hits, and no sum overflows`() {
        #expect(Self.worth(share: .max).hitsPerSecond(from: .max) == 0 && Self.worth(share: 0).hitsPerSecond(from: .min) == 0)
    }

    @Test func `a curve without requests predicts only misses`() {
        let worth = CacheWorth(curve: MissCurve(requests: 0, points: []), share: 10, target: 10, requestsPerSecond: 0, loadTime: 1)
        #expect(worth.missRatio(at: 5) == 1 && worth.hitsPerSecond(from: 100) == 0)
    }

    @Test func `the status shows the effect of 64 MiB more and less`() {
        let status = WorthStatus(Self.worth(share: 80 << 20))
        #expect(status.curve.map(\.bytes) == [16 << 20, 80 << 20, 160 << 20] && status.curve.map(\.missRatio) == [0.8, 0.5, 0.1])
        #expect(abs(status.more.hitsPerSecond - 32) < 1e-9 && abs(status.less.hitsPerSecond + 30) < 1e-9)
        // 32 hits a second save 20 ms each.
        #expect(abs(status.more.savedLoadSecondsPerMinute - 38.4) < 1e-9 && status.loadSeconds == 0.02)
    }
}

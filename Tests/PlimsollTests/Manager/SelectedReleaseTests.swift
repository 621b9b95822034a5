import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// Releases that do not depend on the level.
@Suite(.timeLimit(.minutes(5))) struct SelectedReleaseTests {
    /// A purgeable without contents, which only has spare memory.
    private final class Pool: Purgeable {
        let name = "pool", rebuildCost = RebuildCost.cheap
        private let spares: Int

        init(spares: Int) { self.spares = spares }

        var heldBytes: Int { 0 }
        func release(_ target: Int) -> Int { 0 }
        func dropSpares() -> Int { spares }
    }

    @Test(arguments: [(Int.max - 1, Int.max), (Int.min, 0)] as [(Int, Int)])
    func `the sum of the bytes asked for stays a number, and a negative target adds none`(target: Int, sum: Int) {
        let manager = ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper)
        manager.register(NotedHolder(held: 10))
        for _ in 0..<2 {
            let report: ActionReport = manager.release(target)
            #expect(report.asked == ByteCount(target))
        }
        #expect(manager.counts.releases.askedBytes == sum && manager.counts.releases.count == 2)
    }

    @Test(arguments: [([], 0), ([4096], 4096), ([4096, 1000], 5096), ([4096, -1], 4096)] as [([Int], Int)])
    func `spare memory counts as released on the way to the background, and a negative number as none`(
        spares: [Int], released: Int
    ) async throws {
        let manager = ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper)
        for spares in spares { manager.register(Pool(spares: spares)) }
        let report = try await onThread { manager.parts.purgeForBackground() }.value
        #expect(report.released == .bytes(released) && report.outcome == .done && manager.reports == [report])
    }

    @Test func `every purgeable inside another call is named after a release for the background`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper)
        for name in ["first", "second", "third"] {
            manager.register(NotedHolder(name, held: 10), purgesOnBackground: true)
        }
        let entries = manager.parts.purgeables.snapshot
        let report = try await onThread { () -> ActionReport? in
            var report: ActionReport?
            _ = entries[0].gate.call {
                _ = entries[2].gate.call { report = manager.parts.purgeForBackground() }
            }
            return report
        }.value
        #expect(report?.overran == ["first", "third"] && report?.released == .bytes(10))
    }
}

import PlimsollTesting
import Testing

@testable import Plimsoll

/// The limits that a manager sets by the names of caches.
@Suite struct PurgeableRegistryTests {
    @Test func `a limit by name applies to registered and later caches, and again only when it changes`() {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let images = PurgeableCache<Int, Int>("images"), rows = PurgeableCache<Int, Int>("rows")
        manager.register(images)
        manager.setLimits(["images": .mebibytes(4), "rows": .mebibytes(2)])
        manager.register(rows)
        #expect(images.limit == .mebibytes(4) && rows.limit == .mebibytes(2))
        images.limit = .mebibytes(1)
        manager.setLimits(["images": .mebibytes(4)])
        #expect(images.limit == .mebibytes(1), "other code has set another limit meanwhile")
        #expect(rows.limit == .mebibytes(2), "a name that is left out keeps its limit")
        manager.setLimits(["images": .mebibytes(8)])
        #expect(images.limit == .mebibytes(8))
    }
}

import PlimsollTesting
import TestSupport
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

    @Test func `a limit that is set while a cache registers stays`() {
        final class Images: ResizablePurgeable {
            let name = "images", rebuildCost = RebuildCost.cheap, heldBytes = 0
            let statistics = CacheStatistics(), holdsAtMost: ByteCount? = nil
            let limits = Log<ByteCount>()
            private let whenRegistered: @Sendable () -> Void

            init(whenRegistered: @escaping @Sendable () -> Void) { self.whenRegistered = whenRegistered }

            func release(_ target: Int) -> Int { 0 }

            func resize(to limit: ByteCount) {
                if limit == .mebibytes(4) { whenRegistered() }
                limits.add(limit)
            }
        }
        let manager = ResourceManager(source: ScriptedPressureSource())
        manager.setLimits(["images": .mebibytes(4)])
        // As if by another thread, just before the registration applies its limit.
        let images = Images { [weak manager] in manager?.setLimits(["images": .mebibytes(8)]) }
        manager.register(images)
        #expect(images.limits.all.last == .mebibytes(8))
    }
}

import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// Reloads of entries that were purged on the way to the background.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BackgroundReloadTests {
    @Test func `C89 entries purged on the way to the background are loaded anew on the next look-up, once`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper)
        let images = VolatileCache<Int, [UInt8]>("images", limit: .mebibytes(4)), loads = Counter()
        let thumbnails = PurgeableCache<Int, Int>("thumbnails", cost: { _, _ in 100 })
        images.insert([1], forKey: 1)
        thumbnails.insert(1, forKey: 1)
        manager.register(images, purgesOnBackground: true)
        manager.register(thumbnails, purgesOnBackground: true)
        _ = try await onThread { manager.parts.purgeForBackground() }.value
        #expect(images.value(forKey: 1) == nil && thumbnails.value(forKey: 1) == nil)
        for _ in 0..<3 {
            let image = try await images.value(forKey: 1) {
                loads.add(1)
                return [2]
            }
            let thumbnail = try await thumbnails.value(forKey: 1) {
                loads.add(1)
                return 2
            }
            #expect(image == [2] && thumbnail == 2)
        }
        #expect(loads.value == 2)
    }
}

import Glibc
import PlimsollTesting
import Testing

@testable import Plimsoll

/// What the way to the background gives back that no holder has, and what comes again afterwards.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BackgroundHeapTests {
    /// Bytes of this process that are resident (`/proc/self/statm`, second field, in pages).
    private static func resident() -> Int {
        guard let file = fopen("/proc/self/statm", "r") else { return -1 }
        defer { fclose(file) }
        var text = [CChar](repeating: 0, count: 200)
        guard fgets(&text, 200, file) != nil else { return -1 }
        let fields = text.prefix { $0 != 0 }.split(separator: 32).map { Int(String(decoding: $0.map { UInt8(bitPattern: $0) }, as: UTF8.self)) ?? -1 }
        return fields.count > 1 ? fields[1] * Int(getpagesize()) : -1
    }

    @Test func `C88 memory that was freed and that the heap keeps goes back to the kernel on the way to the background`() async {
        await #expect(processExitsWith: .success) {
            let manager = ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper)
            // 64 MiB in pieces. Every hundredth stays, so that the heap keeps the others once they are free.
            let pieces = (0..<32_768).map { number -> UnsafeMutableRawPointer in
                guard let piece = malloc(2000) else { exit(3) }
                memset(piece, Int32(number & 255), 2000)
                return piece
            }
            for (number, piece) in pieces.enumerated() where number % 100 != 0 { free(piece) }
            let before = Self.resident()
            _ = manager.parts.purgeForBackground(within: .seconds(60))
            let after = Self.resident()
            if before < 60 << 20 || after <= 0 { exit(2) }
            // The status tells how many MiB went.
            exit(before - after > 40 << 20 ? 0 : 100 + Int32(max(0, before - after) >> 20))
        }
    }

    @Test func `C89 what went on the way to the background is loaded anew by whoever asks its cache for it, once`() async throws {
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

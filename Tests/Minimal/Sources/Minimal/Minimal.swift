import Plimsoll
import PlimsollLinux

@main
struct Minimal {
    static func main() async throws {
        let manager = ResourceManager(source: LinuxPressureSource())
        let cache = PurgeableCache<String, [UInt8]>("pages", limit: .mebibytes(64), cost: { _, page in page.count })
        let thumbs = VolatileCache<UInt64, [UInt8]>("thumbs")
        manager.register(cache)
        manager.register(thumbs)
        manager.observe { event in print(event.level) }
        cache.insert([1, 2, 3], forKey: "index")
        try await manager.withBackgroundTask("warm") { _ in thumbs.insert([4, 5], forKey: 1) }
        print(manager.capabilities, cache.value(forKey: "index") ?? [], thumbs.value(forKey: 1) ?? [])
        if CommandLine.arguments.contains("run") { try await manager.run() }
    }
}

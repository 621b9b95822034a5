import Foundation
import FoundationNetworking
import Plimsoll
import PlimsollFoundationNetworking
import PlimsollLifecycle
import PlimsollTesting
import Testing

@Suite(.timeLimit(.minutes(5))) final class URLCacheTests: Sendable {
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent("plimsoll-urlcache-\(UUID())")
    let manager = ResourceManager(source: ScriptedPressureSource(), clock: ManualClock())

    deinit { try? FileManager.default.removeItem(at: folder) }

    private static func request(_ number: Int) -> URLRequest { URLRequest(url: URL(string: "http://host/\(number)")!) }

    fileprivate static func store(_ number: Int, in cache: URLCache, bytes: Int = 1000, _ policy: URLCache.StoragePolicy = .allowedInMemoryOnly) {
        let request = request(number)
        let response = HTTPURLResponse(url: request.url!, statusCode: 200, httpVersion: nil, headerFields: nil)!
        cache.storeCachedResponse(
            CachedURLResponse(response: response, data: Data(repeating: UInt8(number), count: bytes), storagePolicy: policy), for: request)
    }

    private func has(_ numbers: Range<Int>, _ cache: URLCache) -> [Int] {
        numbers.filter { cache.cachedResponse(for: Self.request($0))?.data.first == UInt8($0) }
    }

    @Test func `C88 a URL cache under pressure gives up the oldest entries up to the request, and goes on`() {
        let cache = PurgeableURLCache(memoryCapacity: 100_000, diskCapacity: 0, diskPath: folder.path)
        manager.register(cache, name: "pages")
        for number in 0..<20 { Self.store(number, in: cache) }
        let report: ActionReport = manager.release(5000)
        #expect(report.released == .bytes(5000) && has(0..<20, cache) == Array(5..<20) && cache.memoryCapacity == 100_000)
        #expect((manager.release() as ActionReport).released == .bytes(15_000) && cache.currentMemoryUsage == 0)
        #expect((manager.release() as ActionReport).released == .zero)
        Self.store(3, in: cache)
        #expect(has(0..<20, cache) == [3] && cache.currentMemoryUsage == 1000)
    }

    @Test func `C87 C88 a URL cache registered for purging is emptied on the way to the background, and stays usable`() async throws {
        let cache = PurgeableURLCache(memoryCapacity: 100_000, diskCapacity: 0, diskPath: folder.path)
        let configuration = URLSessionConfiguration.ephemeral
        configuration.urlCache = cache
        let session = URLSession(configuration: configuration)
        manager.register(cache, purgesOnBackground: true)
        for number in 0..<5 { Self.store(number, in: cache) }
        try await manager.lifecycle.launch()
        try await manager.lifecycle.enterBackground(cause: .idle)
        #expect(cache.currentMemoryUsage == 0 && session.configuration.urlCache === cache)
        Self.store(1, in: cache)
        #expect(has(0..<5, cache) == [1])
    }

    @Test func `a purge empties memory, and the disk stays`() {
        let cache = PurgeableURLCache(memoryCapacity: 1 << 20, diskCapacity: 1 << 20, diskPath: folder.path)
        manager.register(cache)
        for number in 0..<5 { Self.store(number, in: cache, .allowed) }
        let onDisk = cache.currentDiskUsage
        #expect((manager.release() as ActionReport).released > .bytes(5000) && cache.currentMemoryUsage == 0)
        #expect(onDisk > 5000 && cache.currentDiskUsage == onDisk && has(0..<5, cache) == Array(0..<5))
    }

    @Test func `any other URLCache is emptied completely, and stays usable`() {
        let cache = URLCache(memoryCapacity: 1 << 20, diskCapacity: 1 << 20, diskPath: folder.path)
        manager.register(cache)
        // Request 0 twice: a plain URLCache would not survive that if its capacity were lowered.
        for number in [0, 0, 1, 2] { Self.store(number, in: cache, .allowed) }
        #expect((manager.release(1) as ActionReport).released > .bytes(3000) && cache.currentMemoryUsage == 0 && has(0..<5, cache) == [])
        Self.store(7, in: cache)
        #expect(has(0..<9, cache) == [7] && cache.memoryCapacity == 1 << 20 && cache.diskCapacity == 1 << 20)
    }

    @Test func `a request stored again and again is kept once, and evicting is safe`() {
        let cache = PurgeableURLCache(memoryCapacity: 10_000, diskCapacity: 0, diskPath: folder.path)
        for round in 0..<50 { for number in 0..<8 { Self.store(number, in: cache, bytes: 1000 + round) } }
        #expect(cache.currentMemoryUsage == 8 * 1049)
        cache.trimMemory(to: 3000)
        #expect(has(0..<8, cache) == [6, 7] && cache.memoryCapacity == 10_000)
        for number in 0..<40 { Self.store(number, in: cache, bytes: 2000) }
        #expect(cache.currentMemoryUsage == 10_000 || has(0..<40, cache).last == 39)
        // A response that may not be kept changes nothing. A response that is too large removes the outdated one.
        Self.store(39, in: cache, .notAllowed)
        #expect(has(39..<40, cache) == [39])
        Self.store(39, in: cache, bytes: 20_000)
        #expect(has(39..<40, cache).isEmpty)
        cache.trimMemory(to: -1)
        cache.trimMemory(to: Int.max)
        #expect(cache.currentMemoryUsage == 0 && cache.memoryCapacity == 10_000)
    }

    @Test func `many threads store and trim`() async {
        let cache = PurgeableURLCache(memoryCapacity: 20_000, diskCapacity: 0, diskPath: folder.path)
        await withTaskGroup(of: Void.self) { group in
            for thread in 0..<4 {
                group.addTask {
                    for turn in 0..<300 {
                        Self.store((turn * 7 + thread) % 30, in: cache)
                        if turn % 10 == thread { cache.trimMemory(to: 5000) }
                        _ = cache.cachedResponse(for: Self.request(turn % 30))
                    }
                }
            }
        }
        #expect(cache.currentMemoryUsage <= 20_000 && cache.memoryCapacity == 20_000)
        cache.trimMemory(to: 0)
        #expect(cache.currentMemoryUsage == 0)
    }

    @Test func `a plain URLCache crashes on evicting after one request was stored twice`() async {
        // The process that crashes cannot clean up.
        defer { try? FileManager.default.removeItem(atPath: NSTemporaryDirectory() + "plimsoll-urlcache-of-one-that-crashes") }
        await withKnownIssue("the list of what is oldest has the request twice, the table once") {
            await #expect(processExitsWith: .success) {
                let cache = URLCache(
                    memoryCapacity: 10_000, diskCapacity: 0, diskPath: NSTemporaryDirectory() + "plimsoll-urlcache-of-one-that-crashes")
                for number in [0, 0, 1] { URLCacheTests.store(number, in: cache) }
                cache.memoryCapacity = 0
            }
        }
    }

    @Test func `URLCache takes addresses that differ in query or scheme only for the same address`() throws {
        let cache = URLCache(memoryCapacity: 10_000, diskCapacity: 0, diskPath: folder.path)
        let one = URLRequest(url: try #require(URL(string: "http://host/a?page=1"))),
            other = URLRequest(url: try #require(URL(string: "https://host/a?page=2")))
        let response = HTTPURLResponse(url: one.url!, statusCode: 200, httpVersion: nil, headerFields: nil)!
        cache.storeCachedResponse(CachedURLResponse(response: response, data: Data(count: 10), storagePolicy: .allowedInMemoryOnly), for: one)
        withKnownIssue("the response to another request") { #expect(cache.cachedResponse(for: other) == nil) }
    }
}

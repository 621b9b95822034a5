// The snippets of docs/MigratingFromNSCache.md, as an application has them: no @testable here.
import Foundation
import FoundationNetworking
import Plimsoll
import PlimsollFoundation
import PlimsollFoundationNetworking
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

private let log = Log<String>()

final class Evictions: MemoryCacheDelegate {
    func cache(_ cache: MemoryCache<NSString, NSData>, willEvictObject object: NSData) {
        log.add("evicted \(object.length) bytes, \(cache.count) objects left")  // the cache may be used here, in any way
    }
}

@Suite(.timeLimit(.minutes(5))) struct NSCacheArticleTests {
    private let manager = ResourceManager(source: ScriptedPressureSource())

    @Test func `an NSCache migrates by a changed type and a registration`() {
        let data = NSData(data: Data(count: 1000))
        let thumbnails = MemoryCache<NSString, NSData>()
        thumbnails.totalCostLimit = 64 << 20
        manager.register(thumbnails)  // from here on it gives way under memory pressure

        thumbnails.setObject(data, forKey: "7", cost: data.length)
        let thumbnail = thumbnails.object(forKey: "7")
        #expect(thumbnail === data && (manager.release() as ActionReport).released == .bytes(1000) && thumbnails.count == 0)
    }

    @Test func `the article's keys and values may be other than objects`() throws {
        let url = try #require(URL(string: "https://host/a"))
        let sizes = MemoryCache<URL, Int>()
        sizes.countLimit = 10_000
        sizes.setObject(4096, forKey: url)
        #expect(sizes.object(forKey: url) == 4096)
    }

    @Test func `the article's delegate is notified of evictions`() {
        let cache = MemoryCache<NSString, NSData>(), evictions = Evictions()
        cache.delegate = evictions
        cache.countLimit = 1
        for key in ["a", "b"] { cache.setObject(NSData(data: Data(count: 12)), forKey: key as NSString) }
        #expect(log.all == ["evicted 12 bytes, 0 objects left"])
    }

    @Test func `the article's discardable content is discarded`() {
        let decoded = Data(repeating: 7, count: 100_000), images = MemoryCache<NSString, PurgeableData>()
        let sent = Mutex(0)
        func send(_ bytes: Data) { sent.withLock { $0 += bytes.count } }
        func render() { Issue.record("it is there") }
        let image = PurgeableData(data: decoded)
        images.setObject(image, forKey: "cover", cost: image.length)
        image.endContentAccess()  // made accessed, as NSPurgeableData is; the kernel's to take from here on

        if let image = images.object(forKey: "cover"), image.beginContentAccess() {
            defer { image.endContentAccess() }
            image.withData { bytes in send(bytes) }  // in place, not copied
        } else {
            render()
        }
        #expect(sent.withLock { $0 } == 100_000)
        image.discardContentIfPossible()
        #expect(images.object(forKey: "cover") == nil && images.count == 0)
    }

    @Test func `the article's cache of responses works`() {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("plimsoll-article-\(UUID())")
        defer { try? FileManager.default.removeItem(at: folder) }
        let configuration = URLSessionConfiguration.ephemeral
        let responses = PurgeableURLCache(memoryCapacity: 64 << 20, diskCapacity: 512 << 20, diskPath: folder.path)
        configuration.urlCache = responses
        manager.register(responses)  // gives up memory, oldest first; the disk stays, and so does the session
        #expect(configuration.urlCache === responses)
        manager.register(URLCache(memoryCapacity: 1000, diskCapacity: 0, diskPath: folder.path))
    }

    @Test func `the article's calls beyond NSCache work`() async throws {
        let path = "/a"
        @Sendable func load(_ path: String) async throws -> Data { Data(path.utf8) }
        let pages = VolatileCache<String, Data>("pages")  // no limit: what would otherwise be idle
        manager.register(pages)
        let page = try await pages.value(forKey: path) { try await load(path) }
        #expect(page == Data("/a".utf8))
    }

    // MARK: The article

    private static let article = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appendingPathComponent("docs/MigratingFromNSCache.md")

    @Test(.needs(FileManager.default.fileExists(atPath: article.path), "the sources are not at hand"))
    func `this file compiles the article's snippets word for word`() throws {
        func lines(_ text: String) -> [Substring] { text.split(separator: "\n").map { $0.drop { $0 == " " } } }
        let own = lines(try String(contentsOfFile: #filePath, encoding: .utf8)).joined(separator: "\n")
        let parts = try String(contentsOf: Self.article, encoding: .utf8).split(separator: "```", omittingEmptySubsequences: false)
        let snippets = parts.filter { $0.hasPrefix("swift\n") }.map { lines(String($0)).dropFirst() }
        #expect(snippets.count == 6)
        for snippet in snippets {
            #expect(own.contains(snippet.joined(separator: "\n")), "the snippet that begins with: \(snippet.first ?? "")")
        }
    }
}

import Plimsoll
import PlimsollSpill
import PlimsollTesting
import TestServers
import Testing

/// The snippet of `docs/Adapters.md` about spilling.
@Suite(.timeLimit(.minutes(5))) struct SpillArticleTests {
    private func render(_ id: String) async throws -> [UInt8] { Array(id.utf8) }

    @Test func `a missing server makes the service render a value`() async throws {
        let cache = PurgeableCache<String, [UInt8]>("thumbnails", limit: .mebibytes(1)) { _, bytes in bytes.count },
            manager = ResourceManager(source: ScriptedPressureSource())
        let port = Loopback.freePort(), id = "x"
        let store = SpillStore.memcached(host: "127.0.0.1", port: port)
        let thumbnails = SpilledCache(cache, to: store, manager: manager)
        let image = try await thumbnails.value(forKey: id) { try await render(id) }
        #expect(image == [120] && thumbnails.statistics.unanswered + thumbnails.statistics.skipped == 1)
    }

    @Test func `the article's snippets match this file`() throws { #expect(try Article.missingLines(of: "Spilling", in: #filePath) == []) }
}

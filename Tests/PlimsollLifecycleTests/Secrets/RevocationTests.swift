import CAllocationCounter
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct RevocationTests {
    private func cache(limit: ByteCount? = nil, timeToLive: Duration? = nil) -> PurgeableCache<Int, String> {
        PurgeableCache("sessions", limit: limit, timeToLive: timeToLive, shardCount: 4, cost: { _, _ in 10 })
    }

    /// Returns true if the cache's counts by tag agree with the tags of the entries.
    private func isExact(_ cache: PurgeableCache<Int, String>, _ tags: [Int: [String]]) -> Bool {
        var expected: [String: Int] = [:]
        for (key, tags) in tags where cache.value(forKey: key) != nil { for tag in Set(tags) { expected[tag, default: 0] += 1 } }
        return ["a", "b", "c", "d"].allSatisfy { cache.count(tag: $0) == expected[$0, default: 0] }
    }

    @Test func `C67 purging a tag removes all entries with that tag, and no others`() {
        let cache = cache()
        for key in 0..<1000 { cache.insert("v", forKey: key, tags: key % 10 == 0 ? ["tenant-42", "x"] : key % 2 == 0 ? ["x"] : []) }
        #expect(cache.count(tag: "tenant-42") == 100 && cache.count(tag: "x") == 500 && cache.count(tag: "other") == 0)
        let reasons = Log<RemovalReason>()
        cache.onRemoval { _, _, reason in reasons.add(reason) }
        #expect(cache.purge(tag: "tenant-42") == 100)
        #expect(cache.count == 900 && cache.count(tag: "tenant-42") == 0 && cache.count(tag: "x") == 400)
        #expect(reasons.all.count == 100 && reasons.all.allSatisfy { $0 == .purged } && cache.statistics.purged == 100)
        #expect(cache.purge(tag: "tenant-42") == 0 && cache.byteCount == 9000)
    }

    @Test func `C67 the index of tags is exact under random calls`() {
        let cache = cache(limit: .bytes(2000))
        var random = SeededGenerator(seed: usualSeed(67))
        var tags: [Int: [String]] = [:]
        for step in 0..<20_000 {
            let key = Int.random(in: 0..<400, using: &random)
            switch Int.random(in: 0..<100, using: &random) {
            case 0..<60:
                let some = ["a", "b", "c", "d", "a"].filter { _ in Int.random(in: 0..<3, using: &random) == 0 }
                if cache.insert("v", forKey: key, tags: some) { tags[key] = some }
            case 60..<75: cache.removeValue(forKey: key)
            case 75..<80: _ = cache.release((Int.random(in: 0..<200, using: &random)))
            case 80: cache.limit = .bytes(Int.random(in: 500..<3000, using: &random))
            case 81: if step % 7 == 0 { cache.removeAll() }
            case 82..<84:
                let tag = ["a", "b", "c", "d"].randomElement(using: &random)!
                let before = cache.count(tag: tag)
                #expect(cache.purge(tag: tag) == before && cache.count(tag: tag) == 0)
            default: _ = cache.value(forKey: key)
            }
            if step % 500 == 0 { #expect(isExact(cache, tags)) }
        }
        #expect(isExact(cache, tags))
        cache.removeAll()
        #expect(["a", "b", "c", "d"].allSatisfy { cache.count(tag: $0) == 0 })
    }

    @Test func `C67 an expired entry leaves all tags`() {
        let cache = cache(timeToLive: .zero)
        cache.insert("v", forKey: 1, tags: ["a"])
        #expect(cache.count(tag: "a") == 1 && cache.value(forKey: 1) == nil && cache.count(tag: "a") == 0)
    }

    @Test func `C67 a purge visits the tag's entries only, and untagged entries are in no index`() {
        var index = TagIndex()
        let first = (0..<1000).map { index.add(Int32($0), $0 % 100 == 0 ? ["t"] : []) }
        #expect(first.count { $0 != TagIndex.none } == 10)
        #expect(index.tagCount == 1 && index.sequence == 10)
        // Oldest first, each found at once. Entries later than the mark are left out.
        let mark = index.sequence
        let late = index.add(5000, ["t"])
        var found: [Int32] = []
        while let slot = index.oldest("t", before: mark) {
            found.append(slot)
            index.remove(first[Int(slot)])
        }
        #expect(found == (0..<10).map { Int32($0 * 100) } && index.count("t") == 1)
        index.remove(late)
        #expect(index.tagCount == 0)
        // Nodes and lists are reused.
        for round in 0..<100 { index.remove(index.add(1, ["x\(round)", "y", "y"])) }
        #expect(index.tagCount == 0 && index.count("y") == 0)
    }

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `C67 T27 tagged entries are released without allocating`() {
        let cache = cache()
        for key in 0..<2000 { cache.insert("v", forKey: key, tags: ["a tag that is longer than a small string \(key % 50)", "all"]) }
        #expect(cache.release(1000) == 1000)
        let before = allocation_count()
        let released = cache.release(.max)
        let after = allocation_count()
        #expect(after - before == 0 && released == 19_000 && cache.count(tag: "all") == 0)
    }

    @Test func `C67 T2 a listener that puts purged entries back does not make the purge endless`() {
        let cache = cache()
        for key in 0..<100 { cache.insert("v", forKey: key, tags: ["a"]) }
        cache.onRemoval { [weak cache] key, value, reason in if reason == .purged { cache?.insert(value, forKey: key, tags: ["a"]) } }
        #expect(cache.purge(tag: "a") == 100 && cache.count(tag: "a") == 100)
    }

    @Test func `C67 many threads insert and purge: no entry from before a purge is there afterwards`() async {
        let cache = PurgeableCache<Int, Int>("c", limit: .bytes(100_000), shardCount: 4, cost: { _, _ in 10 })
        await withTaskGroup(of: Void.self) { group in
            for worker in 0..<4 {
                group.addTask {
                    for round in 0..<2000 {
                        cache.insert(round, forKey: worker * 10_000 + round, tags: ["w\(worker)", "all"])
                        if round % 50 == 49 {
                            cache.purge(tag: "w\(worker)")
                            // Only this thread inserts under this tag.
                            #expect(cache.count(tag: "w\(worker)") == 0)
                            #expect((0...round).allSatisfy { cache.value(forKey: worker * 10_000 + $0) == nil })
                        }
                    }
                }
            }
        }
        cache.purge(tag: "all")
        #expect(cache.count == 0 && cache.byteCount == .zero)
    }

    @Test func `C67 volatile caches know tags as well`() {
        let cache = VolatileCache<Int, [UInt8]>("pages", limit: .mebibytes(16))
        for key in 0..<3000 { cache.insert([1, 2, 3], forKey: key, tags: key % 3 == 0 ? ["t"] : key % 3 == 1 ? ["u"] : []) }
        cache.insert([4], forKey: 0, tags: ["u"])
        #expect(cache.count(tag: "t") == 999 && cache.count(tag: "u") == 1001)
        #expect(cache.purge(tag: "t") == 999 && cache.count(tag: "t") == 0 && cache.value(forKey: 3) == nil && cache.value(forKey: 0) == [4])
        #expect(cache.purge(tag: "t") == 0 && cache.count == 2001)
    }

    // MARK: Loads

    @Test func `C67 a load begun before a purge is not kept, and a later caller loads anew`() async throws {
        try await check(PurgeableCache<Int, String>("heap", cost: { _, value in value.utf8.count })) {
            try await $0.value(forKey: 1, tags: ["t"], orLoad: $1)
        }
        try await check(VolatileCache<Int, String>("volatile", limit: .mebibytes(4))) { try await $0.value(forKey: 1, tags: ["t"], orLoad: $1) }
    }

    private func check<Cache: TagPurgeable>(
        _ cache: Cache, _ value: @escaping @Sendable (Cache, @escaping @Sendable () async throws -> String) async throws -> String
    ) async throws {
        let gate = AsyncStream.makeStream(of: Void.self), begun = Log<String>()
        async let early = value(cache) {
            begun.add("early")
            for await _ in gate.stream {}
            return "old"
        }
        await until { !begun.all.isEmpty }
        cache.purge(tag: "other")
        cache.purge(tag: "t")
        // The early load is still under way.
        #expect(try await value(cache) { "new" } == "new")
        gate.continuation.finish()
        #expect(try await early == "old")
        #expect(try await value(cache) { "never" } == "new" && cache.count(tag: "t") == 1)
    }

    @Test func `C67 a load under another tag is kept`() async throws {
        let cache = cache()
        let kept = try await cache.value(forKey: 1, tags: ["a", "b"]) {
            cache.purge(tag: "c")
            return "kept"
        }
        #expect(kept == "kept" && cache.value(forKey: 1) == "kept" && cache.count(tag: "b") == 1)
        let old = try await cache.value(forKey: 2, tags: ["a", "b"]) {
            cache.purge(tag: "b")
            return "old"
        }
        #expect(old == "old" && cache.value(forKey: 2) == nil && cache.byteCount == .zero)
    }

    // MARK: The whole

    @Test func `C56 C67 a revoked credential is removed everywhere before the next request is admitted, with nothing left`() throws {
        let manager = ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper)
        let sessions = cache(), pages = VolatileCache<Int, [UInt8]>("pages", limit: .mebibytes(4)), other = PurgeableCache<Int, Int>("other")
        for key in 0..<100 { sessions.insert("s", forKey: key, tags: ["tenant-\(key % 2)"]) }
        for key in 0..<10 { pages.insert([0], forKey: key, tags: ["tenant-1"]) }
        other.insert(1, forKey: 1)
        let tag = "tenant-1"
        manager.register(sessions)
        manager.register(pages)
        manager.register(other)
        manager.register("closure", byteCount: { 0 }, release: { $0 })
        let token = manager.lifecycle.keep(try SecretTests.secret(tags: ["tenant-1"])), mine = manager.lifecycle.keep(try SecretTests.secret())
        let task = manager.beginBackgroundTask("export") { task, _ in task.end() }

        let calls = Log<String>()
        manager.lifecycle.revocation.connect(
            .init(
                close: { calls.add("close \(sessions.count(tag: tag))") },
                open: { calls.add("open \(sessions.count(tag: tag)) \(pages.count(tag: tag)) \(token.isWiped)") },
                post: { calls.add("post \($0)") }))
        let report = manager.revoke(tag: tag)
        #expect(calls.all == ["close 50", "post tenant-1", "open 0 0 true"])
        #expect(report.purged == ["sessions": 50, "pages": 10, "other": 0] && report.wiped == ["key"] && report.isClean)
        #expect(sessions.count == 50 && other.count == 1 && !mine.isWiped && SecretTests.isZero(token) && task.isActive)
        #expect("\(report)" == "revoked tenant-1: 60 entries, 1 secrets wiped")
        task.end()
    }

    /// A purgeable that reports the state of the process when purged.
    private final class Probe: Purgeable, TagPurgeable {
        let name = "probe"
        let rebuildCost = RebuildCost.cheap
        let heldBytes = 0
        private let onPurge: @Sendable () -> Void

        init(_ onPurge: @escaping @Sendable () -> Void) { self.onPurge = onPurge }
        func release(_ target: Int) -> Int { 0 }
        func count(tag: String) -> Int { 0 }
        func purge(tag: String) -> Int {
            onPurge()
            return 0
        }
    }

    @Test func `C56 no work is admitted during a revocation, and admission is as before afterwards`() {
        let manager = ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper), profiles = Log<QuiesceExtent.Profile>()
        let quiesce = manager.lifecycle.pausables
        manager.register(Probe { profiles.add(quiesce.extent().profile) })
        manager.revoke(tag: "t")
        #expect(profiles.all == [.paused] && quiesce.extent().profile == .foreground)
    }

    @Test func `C56 C69 revoked credentials and sealed data are reported as changes of the environment`() async {
        let lifecycle = ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper).lifecycle
        var changes = lifecycle.readEnvironment().makeAsyncIterator()
        lifecycle.revokeCredentials(tag: "t")
        #expect(await changes.next()?.kind == .credentials("t"))
        lifecycle.protectedData.seal()
        let sealed = await changes.next()
        #expect(sealed?.kind == .protectedData && sealed?.to == .flag(false))
    }

    @Test func `C67 entries that a listener keeps putting back are counted as a remainder`() throws {
        let manager = ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper)
        let sessions = cache()
        sessions.insert("s", forKey: 1, tags: ["t"])
        sessions.onRemoval { [weak sessions] key, value, reason in if reason == .purged { sessions?.insert(value, forKey: key, tags: ["t"]) } }
        manager.register(sessions)
        let key = manager.lifecycle.keep(try SecretTests.secret(tags: ["t"]))
        let report = key.withBytes { _ in manager.revoke(tag: "t") }
        #expect(report?.isClean == false && report?.remaining == ["sessions": 1] && report?.purged == ["sessions": 3])
        #expect(report?.inUse == ["key"] && report?.wiped == [] && SecretTests.isZero(key))
    }
}

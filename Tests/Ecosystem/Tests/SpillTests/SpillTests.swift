import Plimsoll
import PlimsollSpill
import PlimsollTesting
import Synchronization
import TestServers
import Testing

/// Purged values go to a real server and are found there again, with any behaviour of the server in between.
@Suite(.serialized, .timeLimit(.minutes(5)))
struct SpillTests {
    @Test(arguments: Kind.allCases)
    func `purged values are written, and later found without a load`(kind: Kind) async throws {
        let server = try await SpillServer(kind), texts = SpilledTexts(server.store)
        texts.spill(0..<50)
        #expect(texts.cache.count == 0)
        await texts.written(50)
        #expect(texts.spilled.statistics.stored == 50 && texts.spilled.statistics.lastProblem == nil)
        for key in 0..<50 { #expect(try await texts.text("key \(key)", loaded: "loaded").hasPrefix("text \(key) x")) }
        #expect(texts.spilled.statistics.hits == 50 && texts.cache.count == 50)
        #expect(try await texts.text("another", loaded: "loaded") == "loaded")
        #expect(texts.spilled.statistics.misses == 1 && texts.spilled.statistics.damaged == 0)
    }

    @Test(arguments: Kind.allCases)
    func `stale values are not found: replaced, removed, purged by tag, or left by another process`(kind: Kind) async throws {
        let server = try await SpillServer(kind), texts = SpilledTexts(server.store)
        texts.spill(0..<4)
        await texts.written(4)
        // Replaced after its purge, then removed from the cache without the store's knowledge.
        texts.spilled.insert("new", forKey: "key 0")
        await until { texts.spilled.statistics.removed == 1 }
        #expect(texts.cache.removeValue(forKey: "key 0") == "new")
        #expect(try await texts.text("key 0", loaded: "loaded") == "loaded")
        #expect(texts.spilled.removeValue(forKey: "key 1") == nil)
        #expect(try await texts.text("key 1", loaded: "loaded") == "loaded")
        #expect(try await texts.text("key 2", loaded: "loaded").hasPrefix("text 2"))

        // The tags of stored values are unknown, so a purge by tag gives up all stored values.
        texts.cache.insert("tagged", forKey: "tagged", tags: ["tenant"])
        texts.cache.purge(tag: "tenant")
        #expect(texts.spilled.statistics.forgotten == 1 && texts.spilled.statistics.queuedBytes == .zero)
        #expect(try await texts.text("tagged", loaded: "loaded") == "loaded")
        #expect(try await texts.text("key 3", loaded: "loaded") == "loaded")

        // Another process has another generation unless a generation is given.
        let one = SpilledTexts(server.store, generation: 7), same = SpilledTexts(server.store, generation: 7), other = SpilledTexts(server.store)
        one.spill(0..<1)
        await one.written(1)
        #expect(try await other.text("key 0", loaded: "loaded") == "loaded")
        #expect(try await same.text("key 0", loaded: "loaded").hasPrefix("text 0"))
    }

    @Test(arguments: Kind.allCases)
    func `a store may have the largest bound of a record`(kind: Kind) async throws {
        let server = try await SpillServer(kind)
        let store: SpillStore =
            switch kind {
            case .memcached: .memcached(host: "127.0.0.1", port: server.port, mostBytes: .max)
            case .redis: .redis(host: "127.0.0.1", port: server.port, mostBytes: .max)
            }
        let texts = SpilledTexts(store)
        texts.spill(0..<1)
        await texts.written(1)
        #expect(try await texts.text("key 0", loaded: "loaded").hasPrefix("text 0"))
        #expect(texts.spilled.statistics.hits == 1)
    }

    @Test func `a negative bound of a record is refused at once`() async {
        await #expect(processExitsWith: .failure) { _ = SpillStore.redis(host: "127.0.0.1", mostBytes: -1) }
    }

    @Test(arguments: Kind.allCases)
    func `a killed and restarted server costs loads, no errors`(kind: Kind) async throws {
        let server = try await SpillServer(kind), texts = SpilledTexts(server.store)
        texts.spill(0..<10)
        await texts.written(10)
        await server.process.kill()
        for key in 0..<10 { #expect(try await texts.text("key \(key)", loaded: "loaded") == "loaded") }
        await until { texts.spilled.statistics.isStoreDown }
        let before = texts.spilled.statistics
        #expect(before.failures >= 3 && before.hits == 0)
        let problem = try #require(before.lastProblem)
        #expect(problem.contains("127.0.0.1"), "\(problem)")
        try await server.restart()
        // Waits until the store is asked again, and found to be up.
        await until {
            texts.spill(100..<101)
            return texts.spilled.statistics.stored > before.stored && !texts.spilled.statistics.isStoreDown
        }
        // The store may have been found to be up by the write of another value, and key 100 been refused until then.
        texts.spill(100..<101)
        await until { texts.spilled.statistics.queuedCount == 0 }
        #expect(try await texts.text("key 100", loaded: "loaded").hasPrefix("text 100"))
        #expect(texts.spilled.statistics.damaged == 0)
    }

    @Test(arguments: Kind.allCases)
    func `a server that freezes during requests holds no caller up`(kind: Kind) async throws {
        let server = try await SpillServer(kind), texts = SpilledTexts(server.store, limits: .hasty)
        texts.spill(0..<3)
        await texts.written(3)
        server.process.freeze(true)
        for key in 0..<20 { #expect(try await texts.text("key \(key)", loaded: "loaded") == "loaded") }
        texts.spill(20..<60)
        await until { texts.spilled.statistics.isStoreDown }
        server.process.freeze(false)
        await until {
            texts.spill(100..<101)
            return !texts.spilled.statistics.isStoreDown
        }
        // The server may still carry out delayed requests. None of these old values may be found.
        for key in 0..<3 {
            texts.spilled.insert("new", forKey: "key \(key)")
            texts.cache.removeValue(forKey: "key \(key)")
            #expect(try await texts.text("key \(key)", loaded: "newest") == "newest")
        }
    }

    @Test(arguments: Kind.allCases)
    func `a server that accepts and never answers is detected, and left alone`(kind: Kind) async throws {
        let puppet = PuppetServer(answering: nil), texts = SpilledTexts(kind.store(port: puppet.port), limits: .hasty)
        defer { puppet.stop() }
        for key in 0..<10 { #expect(try await texts.text("key \(key)", loaded: "loaded") == "loaded") }
        await until { texts.spilled.statistics.isStoreDown }
        // The system may have accepted a connection before the puppet has.
        await until { puppet.connectionCount >= 1 }
        let statistics = texts.spilled.statistics
        #expect(statistics.unanswered + statistics.skipped == 10 && statistics.unanswered >= 1 && statistics.hits == 0)
        #expect(puppet.connectionCount >= 1 && statistics.lastProblem != nil)
    }

    @Test(
        arguments: Kind.allCases,
        [
            "+OK\r\n", "garbage that is no protocol\r\n", "$5\r\nwrong\r\n", "*1000000000\r\n", "$999999999999\r\n",
            "VALUE x 0 5\r\nwrong\r\nEND\r\n", "VALUE x 0 99999999999\r\n", "VERSION 1.6.18\r\n",
        ])
    func `a server that lies gives misses`(kind: Kind, answer: String) async throws {
        let puppet = PuppetServer(answering: Array(answer.utf8)), texts = SpilledTexts(kind.store(port: puppet.port), limits: .hasty)
        defer { puppet.stop() }
        texts.spill(0..<5)
        for key in 0..<5 {
            let text = try await texts.text("key \(key)", loaded: "loaded")
            #expect(text == "loaded" || text.hasPrefix("text \(key)"), "only values still in the queue are found")
        }
        for key in 10..<20 { #expect(try await texts.text("key \(key)", loaded: "loaded") == "loaded") }
        let statistics = texts.spilled.statistics
        #expect(statistics.hits == 0 && statistics.damaged + statistics.failures + statistics.unanswered + statistics.skipped > 0)
    }

    /// Sends headers of memcached's binary protocol with every status and opcode, lengths that fit or do not fit, and
    /// fragments of headers.
    @Test func `a server that lies in the binary protocol gives misses`() async throws {
        var random = SeededGenerator(seed: 7)
        for round in 0..<200 {
            var answer: [UInt8] = [0x81, UInt8.random(in: 0..<32, using: &random), 0, 0, 0, 0, 0, UInt8.random(in: 0..<0x90, using: &random)]
            let length: UInt32 = [0, 4, 5, 64, 100_000, .max].randomElement(using: &random)!
            withUnsafeBytes(of: length.bigEndian) { answer.append(contentsOf: $0) }
            answer.append(contentsOf: [UInt8](repeating: 0, count: 12))
            if Bool.random(using: &random) { answer[3] = UInt8.random(in: 0..<250, using: &random) }
            if Bool.random(using: &random) { answer[4] = UInt8.random(in: 0..<64, using: &random) }
            answer.append(contentsOf: (0..<min(64, Int(length))).map { _ in UInt8.random(in: 0...255, using: &random) })
            if round % 7 == 0 { answer.removeLast(Int.random(in: 0..<answer.count, using: &random)) }
            let puppet = PuppetServer(answering: answer), texts = SpilledTexts(Kind.memcached.store(port: puppet.port), limits: .hasty)
            texts.spill(0..<1)
            for key in 10..<13 { #expect(try await texts.text("key \(key)", loaded: "loaded") == "loaded", "round \(round)") }
            #expect(texts.spilled.statistics.hits == 0)
            puppet.stop()
        }
    }
}

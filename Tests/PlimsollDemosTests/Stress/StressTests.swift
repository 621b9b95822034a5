import Foundation
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollDemos

@Suite struct StressTests {
    private let limit = ByteCount.mebibytes(256)

    @Test(arguments: Scenario.allCases)
    func `no scenario can be survived with the cache, and each can without`(scenario: Scenario) {
        let plan = scenario.plan(limit: limit)
        let live = plan.ramp + (plan.liveBeforeHalving ?? 0) + (plan.bursts?.size.upperBound ?? 0)
        let line = plan.liveBeforeHalving == nil ? 1.0 : 0.5
        // The memory that four seconds of requests add to the cache, as a share of the limit.
        let asked = plan.cache + plan.traffic * 4
        #expect(live + asked > line)
        // The process itself and memory kept by the heap need some room, too.
        #expect(live <= line * 0.8 + 1e-9)
        // The kernel reclaims page cache without help, so page cache proves nothing unless the rest exceeds the limit.
        #expect(plan.pageCache == 0 || live + plan.cache > line)
        // When the limit is lowered, all memory must fit below the new limit, or else the cache must not fit.
        if let before = plan.liveBeforeHalving { #expect(scenario == .limitCut ? before + plan.cache > 0.55 : before + plan.cache < 0.45) }
    }

    @Test func `patience is longer than the slowest ramp`() {
        for scenario in Scenario.allCases {
            let plan = scenario.plan(limit: .gibibytes(1))
            let seconds = Double(ByteCount.gibibytes(1).bytes) * plan.ramp / (plan.rate ?? 1e9)
            #expect(scenario.patience(limit: .gibibytes(1)) > .seconds(2 * seconds) + (plan.bursts?.length ?? .zero))
        }
    }

    @Test(arguments: [1, 2])
    func `bursts are of a tenth to six tenths of the limit among all threads, the same for a seed`(threads: Int) {
        let bursts = Bursts(threads: threads)
        for seed in seeds(0..<20) {
            var first = SeededGenerator(seed: seed), second = SeededGenerator(seed: seed), sum = 0.0
            for _ in 0..<100 {
                let burst = bursts.next(limit: limit, using: &first), share = Double((burst.size * Double(threads)).bytes) / Double(limit.bytes)
                #expect(share > 0.0999 && share < 0.6001 && burst.held > .zero && burst.pause >= .zero, "seed \(seed)")
                #expect(burst == bursts.next(limit: limit, using: &second))
                sum += share
            }
            #expect(sum / 100 > 0.25 && sum / 100 < 0.45, "seed \(seed)")
        }
    }

    @Test func `survivors are counted against all runs, medians taken over the survivors`() {
        var summary = StressSummary(scenario: .fastRamp, protection: .reactive)
        summary.add(
            .survived(SubjectResult(noticeMicroseconds: 1000, releaseMicroseconds: 2000, purgeMicroseconds: [3000, 5000], returnedBytes: 1 << 20)))
        summary.add(.survived(SubjectResult(noticeMicroseconds: -3000, releaseMicroseconds: 1000, purgeMicroseconds: [4000], returnedBytes: 3 << 20)))
        summary.add(.killed)
        #expect(
            summary.figures == [
                "figure survival.ramp-200.reactive 2/3 count", "figure notice.ramp-200 -1 ms", "figure release.ramp-200 1.5 ms",
                "figure purge.ramp-200 4 ms", "figure returned.ramp-200 2 MiB",
            ])
    }

    @Test func `a volatile run reports the bytes that the kernel took and the entries left`() {
        var summary = StressSummary(scenario: .hugePages, protection: .volatile)
        summary.add(.survived(SubjectResult(returnedBytes: 5 << 20, keptEntries: 30, lostEntries: 70)))
        #expect(summary.figures == ["figure survival.ramp-huge.volatile 1/1 count", "figure taken.ramp-huge 5 MiB", "figure kept.ramp-huge 30 %"])
        #expect(summary.row == ["ramp-huge", "volatile", "1 of 1", "-", "-", "-", "5", "30"])
    }

    @Test func `a key's value is the same on each request, and differs from other keys' values`() {
        #expect(Thumbnail.render(7) == Thumbnail.render(7) && Thumbnail.render(7) != Thumbnail.render(8))
        #expect(Thumbnail.render(7, byteCount: Subject.valueSize).count == Subject.valueSize)
        #expect(Thumbnail.render(7, byteCount: Subject.valueSize) != Thumbnail.render(8, byteCount: Subject.valueSize))
    }

    @Test(arguments: [false, true])
    func `both kinds of cache keep bytes`(isVolatile: Bool) {
        let cache = ByteCache("test", isVolatile: isVolatile)
        #expect(cache.insert([1, 2, 3], forKey: 1))
        #expect(cache.value(forKey: 1) == [1, 2, 3] && cache.value(forKey: 2) == nil)
        #expect(cache.byteCount > .zero && cache.statistics.hits == 1 && cache.noticeDrops() == .zero)
        #expect(cache.purgeable.name == "test" && cache.purgeable is any VolatilePurgeable == isVolatile)
    }

    @Test func `a run without proof is not counted as survived`() {
        var summary = StressSummary(scenario: .traffic, protection: .none)
        summary.add(.invalid("it was interrupted"))
        #expect(summary.figures == ["figure survival.traffic.none 0/1 count"])
        #expect(summary.invalid == ["it was interrupted"])
    }

    @Test func `a skipped run has a reason and no figure`() {
        let summary = StressSummary(scenario: .pageCache, protection: .reactive, skipped: "no disk")
        #expect(summary.figures.isEmpty)
        #expect(summary.row.last == "skipped: no disk")
    }
}

@Suite struct DemoTests {
    @Test(arguments: [64, 256, 1024], [4.0, 20, 600])
    func `sessions alone stay below the line, and sessions with the cache do not`(mebibytes: Int, seconds: Double) {
        let limit = ByteCount.mebibytes(mebibytes), plan = TrafficPlan(limit: limit, seconds: seconds)
        let sessions = plan.sessionsPerSecond * plan.sessionLife.inSeconds * Double(SessionStore.size)
        #expect(sessions < Double(limit.bytes) * 0.6)
        #expect(plan.sessionLife < .seconds(seconds))
        #expect(Double(plan.keyCount * Thumbnail.meanSize) > Double(limit.bytes) * 4)
        #expect(plan.thumbsPerSecond <= 4000)
    }

    @Test func `the simulated demo shows the same outcome as the real demo`() throws {
        let (without, with) = DemoSimulation(limit: .mebibytes(256), seconds: 20).run()
        #expect(DemoRecord.isProof(without: without, with: with))
        #expect(with.samples.allSatisfy { $0.usage <= .mebibytes(256) && $0.fixed < .mebibytes(192) })
        #expect(with.taken > .zero)
        let line = DemoRecord.result(without: without, with: with)
        let form = try Regex(
            "^result: without=killed after [0-9.]+ s, with=survived, served [0-9]+ requests, [0-9]+ MiB released, [0-9]+ MiB reclaimed by the kernel$"
        )
        #expect(line.wholeMatch(of: form) != nil, "\(line)")
    }

    @Test func `only a kill by the kernel and a survival are a proof`() {
        var without = DemoRecord(isProtected: false), with = DemoRecord(isProtected: true)
        with.fate = .survived
        for (fate, isProof) in [(DemoRecord.Fate.killed(at: .seconds(3)), true), (.survived, false), (.other("x"), false), (.running, false)] {
            without.fate = fate
            #expect(DemoRecord.isProof(without: without, with: with) == isProof)
        }
        without.fate = .killed(at: .seconds(3))
        with.fate = .killed(at: .seconds(4))
        #expect(!DemoRecord.isProof(without: without, with: with))
    }

    @Test func `a service that answers no caller is distinguished from a serving one`() {
        var record = DemoRecord(isProtected: true)
        record.noteServed(8335, at: .seconds(29))
        #expect(record.outage(at: .seconds(30)) == nil)
        record.noteServed(8359, at: .seconds(29.5))
        for second in 30...40 { record.noteServed(8359, at: .seconds(second)) }
        #expect(record.outage(at: .seconds(40)) == "answered no request after 29.5 s" && record.served == 8359)
        record.noteServed(8360, at: .seconds(40))
        #expect(record.outage(at: .seconds(41)) == nil)
    }

    @Test func `the given-back figure is the measured fall, not the promised bytes`() {
        var record = DemoRecord(isProtected: true)
        record.purges = [
            .init(at: .zero, took: .zero, released: .mebibytes(50), fall: .mebibytes(10)),
            .init(at: .zero, took: .zero, released: .mebibytes(50), fall: .mebibytes(-5)),
        ]
        #expect(record.givenBack == .mebibytes(10))
    }
}

@Suite struct ServiceTests {
    private func parse(_ text: String) -> HTTPRequest.Parsed { HTTPRequest.parse(Array(text.utf8)[...]) }

    @Test func `a request is parsed whole, and the next request after that`() {
        let head = "GET /thumb/7?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"
        #expect(parse(head + "GET") == .request(HTTPRequest(path: "/thumb/7", query: "x=1", closes: false), length: head.utf8.count))
        for length in 0..<head.utf8.count { #expect(parse(String(head.prefix(length))) != .refused(400) || length == head.count) }
        #expect(parse("GET / HTTP/1.1\r\nConnection: close\r\n\r\n") == .request(HTTPRequest(path: "/", query: nil, closes: true), length: 37))
    }

    @Test(arguments: [
        ("POST / HTTP/1.1\r\n\r\n", 405), ("GET / HTTP/1.0\r\n\r\n", 400), ("GET  HTTP/1.1\r\n\r\n", 400), ("\r\n\r\n", 400),
        ("GET x HTTP/1.1\r\n\r\n", 400),
        ("GET /\(String(repeating: "a", count: 9000))", 431),
    ])
    func `a malformed request is refused`(text: String, status: Int) { #expect(parse(text) == .refused(status)) }

    @Test func `a response is understood by the demo's own client`() throws {
        let bytes = Array((HTTPRequest.responseHead(200, length: 5) + "hello").utf8)
        let answer = try #require(HTTPClient.answer(in: bytes))
        #expect(answer.status == 200 && answer.headLength + answer.bodyLength == bytes.count)
        #expect(HTTPClient.answer(in: Array(bytes.prefix(10))) == nil)
    }

    @Test(arguments: [false, true])
    func `the service answers over a real connection`(isVolatile: Bool) throws {
        let service = ThumbService(thumbs: ByteCache("thumbs", isVolatile: isVolatile), sessionLife: .seconds(60))
        let (listener, port) = try Socket.listening()
        service.serve(listener)
        var client = HTTPClient(port: port, patience: .seconds(60))
        let answered = ["/thumb/3", "/thumb/3", "/session?9", "/nothing"].map { client.get($0) }
        #expect(answered == [true, true, true, false])
        #expect(service.thumbs.statistics.hits == 1 && service.thumbs.statistics.misses == 1)
        #expect(service.thumbs.value(forKey: 3) == Thumbnail.render(3))
        #expect(service.sessions.count == 1)
        client.close()
    }

    @Test func `the most wanted keys are asked for most, in the same order for a seed`() {
        let zipf = Zipf(count: 100, skew: 1)
        var first = SeededGenerator(seed: 1), second = SeededGenerator(seed: 1)
        var counts = [Int](repeating: 0, count: 100)
        for _ in 0..<20_000 {
            let key = zipf.next(using: &first)
            #expect(key == zipf.next(using: &second))
            counts[key] += 1
        }
        #expect(counts[0] > counts[9] * 5 && counts[9] > counts[99] * 4)
        #expect(counts.allSatisfy { $0 > 0 })
    }
}

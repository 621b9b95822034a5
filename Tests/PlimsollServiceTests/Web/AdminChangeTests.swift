import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollService

/// Parameters of changes that an operator requests over HTTP.
@Suite struct AdminChangeTests {
    private let manager = ResourceManager(source: ScriptedPressureSource())

    private func change(_ page: AdminPages.Page, _ query: [String: String]) async -> AdminPages.Answer {
        await AdminPages(manager, allowsChanges: true).answer(
            page, .init(method: "POST", query: query, host: "localhost", origin: "http://localhost"))
    }

    @Test(arguments: [
        ["byts": "1000"], ["names": "numbers"], ["Name": "numbers"], ["": ""], ["name": "numbers", "byte": "1000"],
    ])
    func `a misspelled parameter is refused and releases nothing`(query: [String: String]) async {
        let cache = PurgeableCache<Int, Int>("numbers", cost: { _, _ in 1000 })
        let registration = manager.register(cache)
        for key in 0..<10 { cache.insert(key, forKey: key) }
        let answer = await change(.release, query)
        #expect(answer.status == 400 && answer.body.contains("/plimsoll/release does not take"), "\(answer)")
        #expect(cache.statistics.count == 10)
        withExtendedLifetime(registration) {}
    }

    @Test func `a misspelled duration does not become the usual one`() async {
        let answer = await change(.simulate, ["level": "critical", "second": "60"])
        #expect(answer.status == 400, "\(answer)")
        #expect(answer.body == "/plimsoll/simulate does not take \"second\"; it takes \"level\", \"seconds\"\n")
    }

    @Test func `everything may be named, and only by itself`() async {
        let cache = PurgeableCache<Int, Int>("numbers", cost: { _, _ in 1000 })
        let registration = manager.register(cache)
        cache.insert(1, forKey: 1)
        for query in [["all": "false"], ["all": "true", "name": "numbers"]] {
            let answer = await change(.release, query)
            #expect(answer.status == 400, "\(query): \(answer)")
        }
        #expect(cache.statistics.count == 1)
        #expect(await change(.release, ["all": "true"]).status == 200)
        #expect(cache.statistics.count == 0)
        withExtendedLifetime(registration) {}
    }

    /// A caller with other work to do while a request waits.
    private actor Caller {
        func release(_ pages: AdminPages) async -> AdminPages.Answer {
            await pages.answer(.release, .init(method: "POST", host: "localhost", origin: "http://localhost"))
        }

        func letGo(_ holder: SlowHolder) { holder.letGo() }
    }

    @Test func `a release that waits for a silent purgeable leaves the caller's thread to other work`() async {
        // Time stands still, so that nothing else ends the wait.
        let clock = ManualClock(), manager = ResourceManager(source: ScriptedPressureSource(), clock: clock)
        let holder = SlowHolder(), caller = Caller(), pages = AdminPages(manager, allowsChanges: true)
        manager.register(holder)
        holder.block()
        defer { holder.letGo() }
        async let answer = caller.release(pages)
        await until("the question for the held bytes") { holder.isAsked }
        await caller.letGo(holder)
        let status = await answer.status
        #expect(status == 200)
    }
}

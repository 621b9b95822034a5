import Glibc
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollService

/// Answers while the code of a purgeable blocks: no client waits long.
@Suite(.timeLimit(.minutes(5))) struct AdminSilenceTests {
    @Test func `the endpoint continues, names the silent purgeable, and keeps the purgeable's last values`() async throws {
        var bounds = AdminEndpoint.Bounds()
        // The clock runs ahead below, and must cut off no client.
        bounds.idle = .seconds(100_000_000)
        try await AdminFixture.run(bounds: bounds) { fixture in
            let holder = SlowHolder()
            fixture.manager.register(holder)
            #expect(try fixture.answer(#"{"command":"status"}"#).status?.holders.contains { $0.name == "slow" && $0.heldBytes == 7 } == true)
            holder.block()
            defer { holder.letGo() }
            let first = try fixture.client(), second = try fixture.client()
            try first.send(Array((#"{"command":"status"}"# + "\n").utf8))
            await fixture.until { holder.isAsked }
            // The thread that waits for the purgeable reads the clock, not the endpoint's loop.
            await fixture.until {
                fixture.clock.advance(by: .milliseconds(100))
                return Self.isReadable(first)
            }
            let status = try #require(try first.decode(first.nextLine()).status), slow = try #require(status.holders.first { $0.name == "slow" })
            #expect(slow.unansweredSeconds ?? 0 >= 1 && slow.heldBytes == 7)
            #expect(status.holders.filter { $0.unansweredSeconds != nil }.count == 1)
            // No answer waits for the purgeable any more: the clock stands still.
            #expect(try second.answer(to: AdminRequest(.tasks)).ok)
            #expect(try second.answer(to: AdminRequest(.caches)).caches?.first { $0.name == "images" }?.cache?.count == 4)
            let sentences = try #require(try second.answer(to: AdminRequest(.explain)).sentences)
            #expect(sentences.contains { $0.hasPrefix("The purgeable \"slow\" has not answered for ") })
            holder.letGo()
            try await until { try second.answer(to: AdminRequest(.caches)).caches?.contains { $0.unansweredSeconds != nil } == false }
        }
    }

    @Test func `pages answer beside a silent purgeable, health at once and the rest within the purgeable's time`() async throws {
        let clock = ManualClock(), manager = ResourceManager(source: ScriptedPressureSource(), clock: clock), holder = SlowHolder()
        manager.register(holder)
        holder.block()
        defer { holder.letGo() }
        let pages = AdminPages(manager)
        async let waiting = pages.answer(.status, .init())
        await until { holder.isAsked }
        for page in [AdminPages.Page.health, .readiness, .ui] { #expect(await pages.answer(page, .init()).status != 500) }
        // The second request does not wait, whether or not the first one does.
        let metrics = await pages.answer(.metrics, .init()).body
        #expect(metrics.contains(#"plimsoll_cache_bytes{cache="slow"}"#))
        async let _ = clock.pass()
        let status = try ManagerStatus(json: await waiting.body)
        #expect(status.holders.first?.unansweredSeconds ?? 0 >= 1)
    }

    private static func isReadable(_ client: AdminClient) -> Bool {
        var file = pollfd(fd: client.descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&file, 1, 0) > 0
    }
}

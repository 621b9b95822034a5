import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct DrainTests {
    let stage = Stage()
    let saved = Log<Int>()
    let tickers = Log<Ticker>()
    var lifecycle: Lifecycle { stage.lifecycle }

    /// Adds a ticker that counts once `held` is open, preserves the count, and returns the count.
    private func count(held: Latch, began: Counter) -> Counter {
        let count = Counter()
        let ticker = Ticker("orders", every: .seconds(1)) { _ in
            began.add(1)
            await held.wait()
            count.add(1)
        }
        lifecycle.pausables.add(ticker)
        tickers.add(ticker)
        preserve(count)
        return count
    }

    /// Preserves the count. Each save adds the count to `saved`.
    private func preserve(_ count: Counter) {
        let saved = saved
        lifecycle.preserve(
            "orders", in: MemoryStateStore(),
            snapshot: {
                saved.add(count.value)
                return []
            }, restore: { _ in })
    }

    /// Enters `limiter` with a request that counts in `began`, and counts in `changed` once `held` is open.
    private static func request(
        to limiter: ConcurrencyLimiter, _ began: Counter, until held: Latch, _ changed: Counter
    ) async throws {
        try await limiter.run {
            began.add(1)
            await held.wait()
            changed.add(1)
        }
    }

    private func tick(_ began: Counter) async {
        stage.clock.advance(by: .seconds(1))
        await until { began.value != 0 }
    }

    @Test func `C41 C43 changes of a tick admitted before the pause are saved`() async throws {
        let held = Latch(), began = Counter(), count = count(held: held, began: began), lifecycle = lifecycle
        try await lifecycle.launch()
        await tick(began)
        async let report = lifecycle.enterBackground(cause: .operator)
        await until("the wait for the tick") { tickers.all[0].isAwaited || !saved.all.isEmpty }
        #expect(lifecycle.state == .background && saved.all.isEmpty && lifecycle.arrival == nil)
        held.open()
        #expect(try await report.overran.isEmpty)
        #expect(count.value == 1 && saved.all == [1] && lifecycle.arrival == true)
    }

    // Found by GateHistoryTests: the pause did not wait for such requests.
    @Test func `C41 C43 changes of a request admitted before the pause are saved`() async throws {
        let held = Latch(), began = Counter(), changed = Counter(), lifecycle = lifecycle
        let limiter = ConcurrencyLimiter("orders", limit: 4, inBackground: 0)
        lifecycle.pausables.add(limiter)
        preserve(changed)
        try await lifecycle.launch()
        async let request: Void = Self.request(to: limiter, began, until: held, changed)
        await until("the request is inside") { began.value == 1 }
        async let report = lifecycle.enterBackground(cause: .operator)
        await until("the wait for the request") { limiter.isAwaited || !saved.all.isEmpty }
        #expect(lifecycle.state == .background && saved.all.isEmpty && lifecycle.arrival == nil)
        held.open()
        try await request
        #expect(try await report.overran.isEmpty)
        #expect(saved.all == [1] && lifecycle.arrival == true)
    }

    @Test func `C43 C61 a tick longer than half of the time is named, and the state does not count as saved`() async throws {
        let held = Latch(), began = Counter(), lifecycle = lifecycle
        _ = count(held: held, began: began)
        try await lifecycle.launch()
        await tick(began)
        let report = try await stage.whileTimePasses { try await lifecycle.enterBackground(cause: .operator) }
        let late = report.overran.filter { $0.origin == "quiesce" }
        #expect(late.map(\.name) == ["orders"], "\(report)")
        #expect(late.allSatisfy { $0.took > .seconds(2) && $0.took < .seconds(3) }, "half of five seconds: \(report)")
        #expect(saved.all == [0] && lifecycle.arrival == false)
        // A second request reports nothing more, and the return to the foreground clears `arrival`.
        #expect(try await lifecycle.enterBackground(cause: .supervisor).overran.isEmpty && lifecycle.arrival == false)
        held.open()
        try await lifecycle.enterForeground(cause: .supervisor)
        #expect(lifecycle.arrival == nil)
    }

    @Test(arguments: [true, false])
    func `C43 a tick that asks for the background ends before the save, at once`(isScene: Bool) async throws {
        let lifecycle = lifecycle, ended = Counter()
        try await lifecycle.launch()
        let scene: Scene? = isScene ? lifecycle.connectScene("a", reason: .userRequest) : nil
        await scene?.connected()
        lifecycle.pausables.add(
            Ticker("idle", every: .seconds(1)) { _ in
                if let scene {
                    _ = try? await scene.enterBackground(cause: .idle)
                } else {
                    _ = try? await lifecycle.enterBackground(cause: .idle)
                }
                ended.add(1)
            })
        stage.clock.advance(by: .seconds(1))
        // The clock stands still from here on: no deadline passes.
        guard await until("the end of the tick", { ended.value == 1 }) else { return }
        await until("the arrival") { lifecycle.arrival != nil }
        #expect(lifecycle.arrival == true && lifecycle.state == .background)
    }

    @Test func `C22 a terminating process's last save comes after the ticks, too`() async throws {
        let held = Latch(), began = Counter(), lifecycle = lifecycle
        _ = count(held: held, began: began)
        try await lifecycle.launch()
        await tick(began)
        async let report = lifecycle.terminate()
        await until("the wait for the tick") { tickers.all[0].isAwaited || !saved.all.isEmpty }
        held.open()
        #expect(await report.overran.isEmpty && saved.all == [1] && lifecycle.arrival == true)
    }

    @Test func `C22 C34 a leased class of work stops as well before the last save of a terminating process`() async throws {
        let held = Latch(), began = Counter(), changed = Counter(), limits = Log<Int>(), lifecycle = lifecycle
        let limiter = ConcurrencyLimiter("billing", limit: 4, waitingWhilePausedAtMost: .zero, workClass: "billing")
        lifecycle.pausables.add(limiter)
        let lease = lifecycle.pausables.lease("billing", admitting: "billing")
        preserve(changed)
        try await lifecycle.launch()
        async let request: Void = Self.request(to: limiter, began, until: held, changed)
        await until("the request is inside") { began.value == 1 }
        // A background task that is asked to stop may still use the leased class.
        let task = stage.manager.beginBackgroundTask("invoices") { task, _ in
            limits.add(limiter.statistics.limit)
            task.end()
        }
        async let report = lifecycle.terminate()
        await until("the wait for the request") { limiter.isAwaited || !saved.all.isEmpty }
        #expect(limits.all == [4] && !task.isActive && saved.all.isEmpty)
        await #expect(throws: AdmissionRefusal.self) { try await limiter.run {} }
        held.open()
        try await request
        #expect(await report.overran.isEmpty && saved.all == [1] && lifecycle.arrival == true)
        await #expect(throws: AdmissionRefusal.self) { try await limiter.run {} }
        lease.cancel()
    }

    @Test func `C34 the release of a resource at termination may use a leased class of work`() async throws {
        let released = Counter(), lifecycle = lifecycle
        let limiter = ConcurrencyLimiter("election", limit: 4, waitingWhilePausedAtMost: .zero, workClass: "election")
        lifecycle.pausables.add(limiter)
        let lease = lifecycle.pausables.lease("election", admitting: "election")
        try lifecycle.exclusive.add(
            ExclusiveResource(
                "leader", release: { try await limiter.run { released.add(1) } }, reacquire: { _ in }))
        try await lifecycle.launch()
        #expect(await lifecycle.terminate().isClean && released.value == 1)
        lease.cancel()
    }

    @Test func `C34 a leased ticker goes on and is not waited for`() async throws {
        let held = Latch(), began = Counter(), lifecycle = lifecycle
        lifecycle.pausables.add(
            Ticker("beat", every: .seconds(1), workClass: "beats") { _ in
                began.add(1)
                await held.wait()
            })
        let lease = lifecycle.pausables.lease("beat", admitting: "beats")
        try await lifecycle.launch()
        await tick(began)
        #expect(try await lifecycle.enterBackground(cause: .operator).overran.isEmpty && lifecycle.arrival == true)
        held.open()
        lease.cancel()
    }
}

import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct TickerTests {
    let clock = ManualClock()
    let set: QuiesceSet
    let ticks = Log<String>()

    init() { set = QuiesceSet(time: clock.timekeeper) }

    @Test func `missed ticks of many tickers are made up for over a tenth of the period, each at a time of its own`() {
        let spreads = (UInt64(0)..<100).compactMap { ordinal in
            let schedule = TickSchedule(period: .seconds(10), makesUp: true, origin: .zero, ordinal: ordinal)
            return schedule.resume(at: .seconds(1000), .full).map { $0 - .seconds(1000) }
        }
        #expect(spreads.count == 100 && Set(spreads).count == 100)
        #expect(spreads.allSatisfy { $0 >= .zero && $0 < .seconds(1) } && spreads.max()! > .milliseconds(980))
    }

    @Test func `the task of a tick is not cancelled while the ticker is a member`() async {
        let begun = Counter(), goOn = Counter(), cancelled = Log<Bool>()
        let ticker = Ticker("held", every: .seconds(1), inBackgroundEvery: nil, makesUp: false) { _ in
            begun.add(1)
            await until { goOn.value > 0 }
            cancelled.add(Task.isCancelled)
        }
        set.add(ticker)
        clock.advance(by: .seconds(1))
        await until { begun.value == 1 }
        goOn.add(1)
        await until { cancelled.all.count == 1 }
        #expect(cancelled.all == [false])
    }

    private func ticker(
        _ name: String, every period: Duration, inBackground: Duration? = nil, makesUp: Bool = false
    ) -> Ticker {
        let ticker = Ticker(name, every: period, inBackgroundEvery: inBackground, makesUp: makesUp) { [ticks, clock] missed in
            ticks.add("\(name) at \(Int(clock.timekeeper.elapsed().inSeconds)), missed \(missed)")
        }
        set.add(ticker)
        return ticker
    }

    /// Moves the clock, and waits at each step until the runs that have begun are done.
    private func pass(_ duration: Duration, _ tickers: [Ticker]) async {
        var left = duration
        while left > .zero {
            clock.advance(by: ManualClock.step)
            for ticker in tickers { await until { !ticker.isRunning } }
            left -= ManualClock.step
        }
    }

    @Test func `C38 C39 a ticker keeps the phase through a pause and does not catch up`() async {
        let ticker = ticker("t", every: .seconds(10))
        await pass(.seconds(20), [ticker])
        set.setState(.inactive)
        await pass(.seconds(45), [ticker])
        set.setState(.active)
        #expect(ticker.ticks == 2)
        await pass(.seconds(15), [ticker])
        #expect(ticks.all == ["t at 10, missed 0", "t at 20, missed 0", "t at 70, missed 4", "t at 80, missed 0"])
    }

    @Test func `C38 T30 a ticker skips ticks during a freeze unless set to make them up, and keeps the phase`() async {
        let ordinary = ticker("t", every: .seconds(10)), careful = ticker("c", every: .seconds(10), makesUp: true)
        await pass(.seconds(5), [ordinary, careful])
        clock.freeze(for: .seconds(60))
        await pass(.seconds(5), [ordinary, careful])
        #expect(ticks.all.sorted() == ["c at 65, missed 5", "c at 70, missed 0", "t at 70, missed 6"])
    }

    @Test func `C38 C39 ticks swallowed by a pause are made up for once, if set`() async {
        let careful = ticker("c", every: .seconds(10), makesUp: true)
        set.setState(.inactive)
        await pass(.seconds(35), [careful])
        for state in [LifecycleState.active, .inactive, .active] { set.setState(state) }
        await pass(.seconds(5), [careful])
        #expect(ticks.all == ["c at 35, missed 2", "c at 40, missed 0"])
    }

    @Test func `T30 C38 C39 a thousand tickers after a freeze of a minute: no burst, at most one call each`() async {
        let tickers = (0..<1000).map { Ticker("\($0)", every: .milliseconds(1000 + 37 * $0), makesUp: $0 % 10 == 0) { _ in } }
        for ticker in tickers { set.add(ticker) }
        await pass(.seconds(3), tickers)
        let before = tickers.map(\.ticks)
        clock.freeze(for: .seconds(60))
        #expect(zip(tickers, before).allSatisfy { $0.0.ticks - $0.1 <= 1 })
        let late = zip(tickers, before).reduce(0) { $0 + Int($1.0.ticks - $1.1) }
        #expect(late <= 100, "only tickers that make up for missed ticks")
        for ticker in tickers { await until { !ticker.isRunning } }
        clock.advance(by: ManualClock.step)
        // At their ordinary pace the tickers make about ten calls in a tenth of a second.
        let burst = zip(tickers, before).reduce(0) { $0 + Int($1.0.ticks - $1.1) }
        #expect(burst < 40)
        #expect(zip(tickers, before).allSatisfy { $0.0.ticks - $0.1 <= 2 })
    }

    @Test func `C60 T30 no ticker ticks before the way back is done`() async {
        let alarms = Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper)), set = QuiesceSet(alarms: alarms)
        alarms.whenGapEnds { [set] _ in set.close() }
        let ticker = Ticker("t", every: .seconds(10), makesUp: true) { _ in }
        set.add(ticker)
        clock.advance(by: .seconds(5))
        clock.freeze(for: .seconds(60))
        clock.advance(by: .seconds(20))
        #expect(ticker.ticks == 0)
        set.open()
        #expect(ticker.ticks == 0, "timers come last")
        alarms.release()
        #expect(ticker.ticks == 1)
    }

    @Test func `a tick that is the first to find the end of a gap does not run`() {
        struct Step: Sendable { let body: @Sendable () -> Void }
        let now = Mutex(Duration.zero), steps = Log<Step>()
        let time = Timekeeper(
            elapsed: { now.withLock { $0 } }, asleep: { .zero }, onStep: { steps.add(Step(body: $0)) })
        let heartbeat = Heartbeat(time: time), alarms = Alarms(time: time, heartbeat: heartbeat)
        let set = QuiesceSet(alarms: alarms)
        #expect(heartbeat.beat(.loop, next: .seconds(2)) == nil)
        // The process freezes after the alarms' own check of the heartbeat.
        alarms.set(.timer, after: .seconds(1)) { now.withLock { $0 = .seconds(60) } }
        let ticker = Ticker("first", every: .seconds(1), makesUp: true) { _ in }
        set.add(ticker)
        now.withLock { $0 = .seconds(1) }
        for step in steps.all { step.body() }
        #expect(heartbeat.gaps == 1 && ticker.ticks == 0 && set.members == ["first"])
    }

    @Test func `C35 in the background tickers stop, or tick together`() async {
        let stopped = ticker("s", every: .seconds(10))
        let together = [(7, "a"), (11, "b"), (90, "c")].map { ticker($0.1, every: .seconds($0.0), inBackground: .seconds(60)) }
        set.setState(.background)
        await pass(.seconds(125), together + [stopped])
        #expect(Set(ticks.all) == ["a at 60, missed 7", "b at 60, missed 4", "a at 120, missed 8", "b at 120, missed 4", "c at 120, missed 0"])
        set.setState(.active)
        await pass(.seconds(5), together + [stopped])
        #expect(ticks.all.suffix(2) == ["a at 126, missed 0", "s at 130, missed 12"])
        set.setPressure(.critical, isQuiescing: true)
        await pass(.seconds(60), together + [stopped])
        #expect(stopped.ticks == 1, "the ladder's rung quiesce stops timers too")
    }

    @Test func `C38 two runs never overlap: a tick during a run is missed`() async {
        let held = Latch(), began = Log<Int>()
        let ticker = Ticker("slow", every: .seconds(1)) { missed in
            began.add(missed)
            await held.wait()
        }
        set.add(ticker)
        clock.advance(by: .seconds(5))
        await until { !began.all.isEmpty }
        #expect(ticker.ticks == 1 && ticker.isRunning)
        held.open()
        await until { !ticker.isRunning }
        clock.advance(by: .seconds(1))
        await until { began.all.count >= 2 }
        #expect(began.all == [0, 4])
    }

    @Test(arguments: [false, true]) func `T30 a ticker that is cancelled, or leaves, never ticks again and the run is cancelled`(leaves: Bool) async {
        let seen = Log<Bool>(), began = Latch()
        let ticker = Ticker("t", every: .seconds(1)) { _ in
            began.open()
            await until { Task.isCancelled }
            seen.add(Task.isCancelled)
        }
        let registration = set.add(ticker)
        clock.advance(by: .seconds(1))
        await began.wait()
        if leaves { registration.cancel() } else { ticker.cancel() }
        // A tick that is due before the run has ended would be skipped.
        await until { !seen.all.isEmpty && !ticker.isRunning }
        clock.advance(by: .seconds(10))
        set.setState(.inactive)
        set.setState(.active)
        clock.advance(by: .seconds(10))
        #expect(ticker.ticks == 1)
        // A ticker that only left the set may join again, with a new phase.
        set.add(ticker)
        clock.advance(by: .seconds(1))
        #expect(ticker.ticks == (leaves ? 2 : 1))
        ticker.cancel()
    }

    @Test func `T30 a ticker ticks by the machine's own time`() async {
        let time = Timekeeper.running, set = QuiesceSet(time: time), seen = Log<Int>()
        let ticker = Ticker("t", every: .milliseconds(5)) { missed in seen.add(missed) }
        let registration = set.add(ticker)
        await until("three ticks") { seen.all.count >= 3 }
        registration.cancel()
        // Each tick, run or missed, takes five milliseconds.
        #expect(time.elapsed() >= .milliseconds(5 * (seen.all.prefix(3).reduce(3, +))))
        await until { !ticker.isRunning }
        let ticks = ticker.ticks
        set.setState(.inactive)
        set.setState(.active)
        #expect(ticker.ticks == ticks)
    }
}

/// A latch that blocks tasks until opened.
final class Latch: Sendable {
    private let state = Mutex<(isOpen: Bool, waiting: [CheckedContinuation<Void, Never>])>((false, []))

    func open() {
        let waiting = state.withLock { state in
            defer { state = (true, []) }
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
    }

    func wait() async {
        await withCheckedContinuation { continuation in
            let isOpen = state.withLock { state in
                if !state.isOpen { state.waiting.append(continuation) }
                return state.isOpen
            }
            if isOpen { continuation.resume() }
        }
    }
}

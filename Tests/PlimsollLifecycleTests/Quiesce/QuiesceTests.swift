import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct QuiesceTests {
    let clock = ManualClock()
    let notified = Log<String>()
    let set: QuiesceSet

    init() { set = QuiesceSet(time: clock.timekeeper) }

    private func member(_ name: String, _ workClass: String? = nil) -> Recorder { Recorder(name, workClass, notified) }

    @Test func `C38 C39 members are notified of pauses in order, of resuming in reverse, and only of changes`() {
        set.add(member("a"))
        set.add(member("b"))
        #expect(notified.all.isEmpty, "an open set notifies no member")
        set.setState(.active)
        set.setState(.inactive)
        set.setState(.inactive)
        #expect(notified.all == ["a: paused", "b: paused"])
        set.setState(.active)
        #expect(notified.all.suffix(2) == ["b: open", "a: open"])
        set.setState(.background)
        #expect(notified.all.suffix(2) == ["a: background", "b: background"] && notified.all.count == 6)
    }

    @Test func `C38 a member added later takes on the extent in force, and a member that leaves is opened`() {
        set.setState(.inactive)
        let registration = set.add(member("late"))
        #expect(notified.all == ["late: paused"] && set.members == ["late"])
        registration.cancel()
        registration.cancel()
        #expect(notified.all == ["late: paused", "late: open"] && set.members.isEmpty)
        set.setState(.active)
        set.setState(.inactive)
        #expect(notified.all.count == 2)
    }

    @Test func `C9 T38 an interruption that flaps resumes nothing twice`() {
        set.add(member("a"))
        let ticker = Ticker("ticker", every: .seconds(10)) { _ in }
        set.add(ticker)
        set.setState(.active)
        for state in [LifecycleState.inactive, .active, .inactive, .active] { set.setState(state) }
        for _ in 0..<1000 {
            set.setState(.inactive)
            set.setState(.inactive)
            set.setState(.active)
            set.setState(.active)
        }
        let all = notified.all
        #expect(all == Array(repeating: ["a: paused", "a: open"], count: 1002).flatMap { $0 })
        clock.advance(by: .seconds(10))
        #expect(ticker.ticks == 1)
    }

    @Test func `C34 a lease keeps one class of work going and no other`() async throws {
        let heartbeat = ConcurrencyLimiter("heartbeat", limit: 4, workClass: "heartbeat")
        let render = ConcurrencyLimiter("render", limit: 4, waitingWhilePausedAtMost: .zero, workClass: "render")
        let pulse = Ticker("pulse", every: .seconds(1), workClass: "heartbeat") { _ in }
        let metrics = Ticker("metrics", every: .seconds(1)) { _ in }
        set.add(heartbeat)
        set.add(render)
        set.add(pulse)
        set.add(metrics)
        set.add(member("feed", "heartbeat"))
        let lease = set.lease("voip", admitting: "heartbeat")
        #expect(set.leases.map(\.name) == ["voip"] && notified.all.isEmpty)
        for state in [LifecycleState.inactive, .background, .suspended] {
            set.setState(state)
            #expect(heartbeat.statistics.limit == 4 && set.extent(for: "heartbeat") == .open)
            #expect(render.statistics.limit == (state == .background ? 1 : 0))
        }
        #expect(try await heartbeat.run { 1 } == 1)
        await #expect(throws: AdmissionRefusal.self) { try await render.run {} }
        clock.advance(by: .seconds(1))
        #expect(pulse.ticks == 1 && metrics.ticks == 0 && notified.all.isEmpty)
        set.setPressure(.critical, isQuiescing: false)
        #expect(heartbeat.statistics.limit == 1, "memory is short for it too")
        set.setPressure(.normal, isQuiescing: false)
        let second = set.lease("push", admitting: "heartbeat")
        lease.cancel()
        lease.cancel()
        #expect(heartbeat.statistics.limit == 4, "another lease holds")
        second.cancel()
        #expect(heartbeat.statistics.limit == 0 && notified.all.last == "feed: paused" && set.leases.isEmpty)
        clock.advance(by: .seconds(5))
        #expect(pulse.ticks == 1)
    }

    @Test func `C34 C60 a lease opens nothing on the way back from a freeze, nor after the end`() {
        let lease = set.lease("voip", admitting: "heartbeat")
        set.setState(.background)
        set.close()
        #expect(set.extent(for: "heartbeat").isHeld && set.extent().isHeld)
        set.open()
        #expect(set.extent(for: "heartbeat") == .open && set.extent() == .background)
        set.setState(.notRunning)
        #expect(set.extent(for: "heartbeat") == .paused && set.extent(for: "other") == .paused)
        lease.cancel()
    }

    @Test func `a gap that ends on the way back from another keeps work out until both ways back are done`() {
        for _ in 0..<2 { set.close() }
        set.open()
        #expect(set.extent().isHeld)
        set.open()
        #expect(set.extent() == .open)
    }

    @Test func `C40 a dormant set keeps every kind of work out, and admits the work afterwards`() async throws {
        let limiter = ConcurrencyLimiter("requests", limit: 2)
        let ticker = Ticker("metrics", every: .seconds(1)) { _ in }
        let views = DirtySet<String>("views") { [notified] in notified.add($0.sorted().joined()) }
        let executor = PausableExecutor("scene"), knob = RateKnob("samples", full: 30, background: 1)
        for add in [{ set.add(limiter) }, { set.add(ticker) }, { set.add(views) }, { set.add(executor) }, { set.add(knob) }] { _ = add() }
        set.setState(.inactive)
        let request = Task { try await limiter.run { 7 } }
        let step = Task(executorPreference: executor) { @concurrent in 8 }
        views.mark("a")
        clock.advance(by: .seconds(3))
        await until { limiter.statistics.waiting != 0 }
        #expect(executor.waiting == 1 && ticker.ticks == 0 && views.rebuilds == 0 && knob.rate == 0 && knob.interval == nil)
        set.setState(.active)
        #expect(try await request.value == 7)
        #expect(await step.value == 8)
        await until { notified.all == ["a"] }
        clock.advance(by: .seconds(1))
        #expect(ticker.ticks == 1 && knob.rate == 30)
    }

    @Test func `C38 no member admits work once another is seen stopped, nor after the change has returned`() async {
        let set = set
        let first = ConcurrencyLimiter("first", limit: 64, waitingWhilePausedAtMost: .zero),
            second = ConcurrencyLimiter("second", limit: 64, waitingWhilePausedAtMost: .zero)
        set.add(first)
        set.add(second)
        var refusals = 0
        for _ in 0..<40 {
            set.setState(.active)
            let hasReturned = Tally(), rounds = Tally()
            refusals += await withTaskGroup(of: Int.self) { group in
                for limiters in [[first, second], [second, first]] {
                    group.addTask {
                        while true {
                            rounds.add(1)
                            let wasStopped = hasReturned.count > 0
                            let isAdmitted = (try? await limiters[0].run(waitingAtMost: .zero) { true }) ?? false
                            if wasStopped { #expect(!isAdmitted) }
                            guard !isAdmitted else {
                                await giveWay()
                                continue
                            }
                            let other = (try? await limiters[1].run(waitingAtMost: .zero) { true }) ?? false
                            #expect(!other)
                            return 1
                        }
                    }
                }
                await until { rounds.count >= 8 }
                set.setState(.inactive)
                hasReturned.add(1)
                return await group.reduce(0, +)
            }
        }
        #expect(refusals == 80)
    }

    @Test func `T1 T2 a member may call the set from the callback, and is never notified after leaving`() {
        let registrations = Mutex<[Registration]>([])
        let odd = Hook("odd") { [set, notified] extent in
            notified.add("odd: \(extent)")
            if extent == .paused {
                set.setPressure(.warning, isQuiescing: false)
                set.add(Recorder("new", nil, notified))
                registrations.withLock { $0 }.first?.cancel()
            }
        }
        let registration = set.add(odd)
        registrations.withLock { $0.append(registration) }
        set.setState(.inactive)
        #expect(notified.all.contains("new: paused, half") && notified.all.filter { $0.hasPrefix("odd") } == ["odd: paused", "odd: open"])
        set.setState(.active)
        #expect(notified.all.last == "new: open, half")
    }

    @Test func `C39 C54 work held back by a pause that came and went during a notification goes on`() async {
        let set = set, executor = PausableExecutor("scene"), held = Log<Int>(), ran = Counter()
        set.add(executor)
        set.add(
            Hook("revoking") { _ in
                set.beginRevocation()
                Task(executorPreference: executor) { @concurrent in ran.add(1) }
                held.add(executor.waiting)
                set.endRevocation()
            })
        set.setPressure(.warning, isQuiescing: false)
        #expect(held.all == [1] && executor.waiting == 0)
        await until("the work is done") { ran.value == 1 }
    }

    @Test func `concurrent changes leave every member with the final extent`() async {
        let members = (0..<8).map { Recorder("\($0)", nil, nil) }
        for member in members { set.add(member) }
        for round in 0..<300 {
            await withTaskGroup(of: Void.self) { group in
                group.addTask { [set] in set.setState(round % 2 == 0 ? .inactive : .active) }
                group.addTask { [set] in set.setPressure(round % 3 == 0 ? .critical : .normal, isQuiescing: round % 5 == 0) }
            }
            #expect(members.allSatisfy { $0.extent == set.extent() })
        }
    }

    @Test func `C39 members of a released paused set go on`() async throws {
        let limiter = ConcurrencyLimiter("render", limit: 1)
        var set: QuiesceSet? = QuiesceSet(time: clock.timekeeper)
        set?.add(limiter)
        set?.add(member("a"))
        set?.setState(.inactive)
        let work = Task { try await limiter.run { 1 } }
        await until { limiter.statistics.waiting != 0 }
        set = nil
        #expect(try await work.value == 1)
        #expect(notified.all == ["a: paused", "a: open"])
    }

    @Test func `C17 C60 after a freeze no work is admitted before the way back is done, whichever call finds the gap`() async throws {
        let steps = Log<String>()
        // A time without steps: no thread reads the clock until an alarm is set.
        let alarms = Alarms(time: Timekeeper(elapsed: clock.timekeeper.elapsed), heartbeat: Heartbeat(time: clock.timekeeper))
        let set = QuiesceSet(alarms: alarms)
        alarms.whenGapEnds { [set] _ in
            set.close()
            steps.add("gap noticed")
        }
        let limiter = ConcurrencyLimiter("requests", limit: 8)
        set.add(limiter)
        _ = alarms.heartbeat.beat(.loop, next: .milliseconds(100))
        #expect(try await limiter.run { 1 } == 1)
        clock.freeze(for: .seconds(60))
        let late = Task { try await limiter.run { steps.add("admitted") } }
        await until { !steps.all.isEmpty && limiter.statistics.waiting != 0 }
        #expect(steps.all == ["gap noticed"] && limiter.statistics.limit == 0)
        steps.add("way back done")
        set.open()
        try await late.value
        #expect(steps.all == ["gap noticed", "way back done", "admitted"])
    }

    @Test func `C17 without a handler for gaps, a gap holds no work back`() async throws {
        let alarms = Alarms(time: Timekeeper(elapsed: clock.timekeeper.elapsed), heartbeat: Heartbeat(time: clock.timekeeper))
        let set = QuiesceSet(alarms: alarms)
        let limiter = ConcurrencyLimiter("requests", limit: 8)
        set.add(limiter)
        _ = alarms.heartbeat.beat(.loop, next: .milliseconds(100))
        clock.freeze(for: .seconds(60))
        #expect(try await limiter.run { 1 } == 1)
        #expect(set.extent() == .open)
    }

    @Test func `C38 C82 rates follow the extent`() {
        let knob = RateKnob("frames", full: 60, background: 10)
        set.add(knob)
        var rates: [Double] = []
        for level in [PressureLevel.normal, .warning, .critical] {
            set.setPressure(level, isQuiescing: false)
            rates.append(knob.rate)
        }
        set.setPressure(.critical, isQuiescing: true)
        rates.append(knob.rate)
        set.setPressure(.warning, isQuiescing: false)
        set.setState(.background)
        rates.append(knob.rate)
        set.setState(.inactive)
        rates.append(knob.rate)
        #expect(rates == [60, 30, 15, 10, 10, 0])
        set.setState(.active)
        set.setPressure(.normal, isQuiescing: false)
        #expect(knob.rate == 60 && knob.interval == .seconds(1.0 / 60))
    }
}

/// A member that logs each notification.
final class Recorder: Quiescable {
    let name: String
    let workClass: String?
    private let log: Log<String>?
    private let last = Mutex(QuiesceExtent.open)

    init(_ name: String, _ workClass: String?, _ log: Log<String>?) {
        self.name = name
        self.workClass = workClass
        self.log = log
    }

    var extent: QuiesceExtent { last.withLock { $0 } }

    func quiesce(to extent: QuiesceExtent) {
        last.withLock { $0 = extent }
        log?.add("\(name): \(extent)")
    }
}

/// A member that calls a closure at each notification.
private final class Hook: Quiescable {
    let name: String
    private let body: @Sendable (QuiesceExtent) -> Void

    init(_ name: String, _ body: @escaping @Sendable (QuiesceExtent) -> Void) {
        self.name = name
        self.body = body
    }

    func quiesce(to extent: QuiesceExtent) { body(extent) }
}

/// A counter that goes up and down and keeps its maximum.
final class Tally: Sendable {
    private let state = Mutex((count: 0, most: 0))
    func add(_ number: Int) {
        state.withLock { state in
            state.count += number
            state.most = max(state.most, state.count)
        }
    }
    var count: Int { state.withLock { $0.count } }
    var most: Int { state.withLock { $0.most } }
}

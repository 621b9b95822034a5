import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The steps of one unit by themselves: their order, their deadline, and the arrival.
@Suite(.serialized, .timeLimit(.minutes(5))) struct LifecycleEngineTests {
    /// The failures that each handler reports.
    private final class Faults: Sendable {
        private let state = Mutex<[String]>([])
        var names: [String] { state.withLock { $0 } }
        func set(_ names: [String]) { state.withLock { $0 = names } }
    }

    private let clock = ManualClock()
    private let contexts = Log<LifecycleContext>()
    private let gaps = Log<LifecycleContext>()
    private let steps = Log<LifecycleTransition>()
    private let faults = Faults()
    private let engine: LifecycleEngine

    init() {
        let stage: LifecycleEngine.Stage = { [contexts, faults] context in
            contexts.add(context)
            return FanOut.Outcome(failures: faults.names)
        }
        engine = LifecycleEngine(
            Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper)), HandlerThreads(),
            stages: { _ in [stage] },
            afterGap: { [gaps, faults] context in
                gaps.add(context)
                return faults.names.isEmpty
            }, onStep: { [steps] in steps.add($0) })
        clock.advance(by: .seconds(10))
    }

    @discardableResult
    private func request(_ target: LifecycleState) async throws -> LifecycleReport {
        try await engine.request(.operator, within: .seconds(7)) { target }
    }

    @Test func `all steps toward a state share one deadline, and the last one knows that it is the last`() async throws {
        let up = try await request(.active)
        #expect(up.target == .active && up.transitions.map(\.to) == [.inactive, .active] && up.took == .zero && !up.isSuperseded)
        #expect(engine.current == .active && engine.target == .active && engine.arrival == nil && engine.waiting == 0)
        clock.advance(by: .seconds(5))
        let down = try await request(.background)
        #expect(down.transitions.map(\.to) == [.inactive, .background] && down.isClean && !down.isSuperseded)
        #expect(contexts.all.map(\.to) == [.inactive, .active, .inactive, .background])
        #expect(contexts.all.map(\.isLast) == [false, true, false, true])
        #expect(contexts.all.map(\.deadline) == [17, 17, 22, 22].map { .seconds($0) })
        #expect(contexts.all.map(\.sequence) == [1, 2, 3, 4] && steps.all.map(\.sequence) == [1, 2, 3, 4])
        let again = try await request(.background)
        #expect(again.transitions.isEmpty && !again.isSuperseded && steps.all.count == 4 && engine.arrival == true)
    }

    @Test(arguments: [true, false])
    func `C7 C26 a second request for the same state shares deadline and cause, and one for another state has its own`(isSame: Bool) async throws {
        let latch = Latch(), contexts = contexts
        let stage: LifecycleEngine.Stage = { context in
            contexts.add(context)
            if context.from == .active { await latch.wait() }
            return FanOut.Outcome()
        }
        let engine = LifecycleEngine(
            Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper)), HandlerThreads(),
            stages: { _ in [stage] }, afterGap: { _ in true }, onStep: { _ in })
        func ask(_ target: LifecycleState, _ cause: LifecycleCause, within budget: Duration) -> Task<LifecycleReport, any Error> {
            Task { try await engine.request(cause, within: budget) { target } }
        }
        _ = try await ask(.active, .launch, within: .seconds(7)).value
        let first = ask(.background, .operator, within: .seconds(7))
        await until("the first step is under way") { contexts.all.last?.from == .active }
        let began = try #require(contexts.all.last)
        clock.advance(by: .seconds(2))
        let second = ask(isSame ? .background : .notRunning, .supervisor, within: .seconds(60))
        await until("the second request is made") { engine.waiting == 2 }
        latch.open()
        let (former, latter) = try await (first.value, second.value)
        #expect(former.isSuperseded == !isSame && !latter.isSuperseded)
        let last = try #require(contexts.all.last)
        #expect(last.from == .inactive && last.to == (isSame ? .background : .notRunning))
        #expect(last.cause == (isSame ? .operator : .supervisor))
        let later: Duration = isSame ? .zero : .seconds(2 + 60 - 7)
        #expect(last.deadline == began.deadline + later)
    }

    @Test func `the arrival in the background is clean if no handler failed on the way, and unknown on the way out`() async throws {
        try await request(.active)
        faults.set(["unsaved"])
        let failed = try await request(.background)
        #expect(failed.failures == ["unsaved", "unsaved"] && engine.arrival == false)
        faults.set([])
        try await request(.active)
        #expect(engine.arrival == nil)
        try await request(.background)
        #expect(engine.arrival == true)
        try await request(.suspended)
        #expect(engine.arrival == nil && engine.current == .suspended)
        faults.set(["unsaved"])
        try await request(.notRunning)
        #expect(engine.arrival == false && engine.current == .notRunning)
    }

    @Test func `a failure on the way to the background counts there, whatever was requested meanwhile`() async throws {
        let latch = Latch(), entered = Counter()
        let stage: LifecycleEngine.Stage = { context in
            guard context.from == .active else { return FanOut.Outcome() }
            entered.add(1)
            await latch.wait()
            return FanOut.Outcome(failures: ["not closed"])
        }
        let engine = LifecycleEngine(
            Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper)), HandlerThreads(),
            stages: { _ in [stage] }, afterGap: { _ in true }, onStep: { _ in })
        func ask(_ target: LifecycleState) -> Task<LifecycleReport, any Error> {
            Task { try await engine.request(.operator, within: .seconds(7)) { target } }
        }
        _ = try await ask(.active).value
        let first = ask(.background)
        await until("the first step is under way") { entered.value == 1 }
        let back = ask(.active)
        await until("the way back is wanted") { engine.target == .active }
        let again = ask(.background)
        await until("the background is wanted again") { engine.target == .background }
        latch.open()
        _ = try await (first.value, back.value, again.value)
        #expect(engine.current == .background && engine.arrival == false)
    }

    @Test func `work saved again in the background counts only if the first save counted`() async throws {
        let engine = engine, calls = Log<Bool?>()
        try await request(.active)
        await engine.arriveAgain {
            calls.add(nil)
            return true
        }
        #expect(calls.all.isEmpty && engine.arrival == nil, "not in the background")
        for (first, second) in [(true, true), (true, false), (false, true), (false, false)] {
            faults.set(first ? [] : ["unsaved"])
            try await request(.background)
            #expect(engine.arrival == first)
            await engine.arriveAgain {
                calls.add(engine.arrival)
                return second
            }
            #expect(engine.arrival == (first && second) && calls.all.last == .some(nil))
            faults.set([])
            try await request(.active)
        }
        #expect(calls.all.count == 4)
    }

    @Test func `a unit that has terminated refuses all requests but termination`() async throws {
        try await request(.background)
        let end = try await request(.notRunning), again = try await request(.notRunning)
        #expect(end.transitions.map(\.to) == [.notRunning] && again.transitions.isEmpty)
        for target in [LifecycleState.suspended, .background, .inactive, .active] {
            await #expect(throws: LifecycleError.self) { try await request(target) }
        }
        #expect(engine.current == .notRunning && steps.all.count == 2)
    }

    @Test func `after a gap in the background the suspension is recorded, and the arrival needs a clean way back`() async throws {
        let freeze = RunningGap(.frozen, .seconds(60)), sleep = RunningGap(.hostSleep, .seconds(60))
        try await request(.active)
        engine.gapEnded(freeze)
        await until("the way back") { gaps.all.count == 1 }
        try await request(.background)
        let before = steps.all.count
        for (gap, cause, isClean) in [(freeze, LifecycleCause.thaw, true), (sleep, .hostSleep, false), (freeze, .thaw, true)] {
            faults.set(isClean ? [] : ["unsaved"])
            let count = gaps.all.count
            engine.gapEnded(gap)
            await until("the way back") { gaps.all.count == count + 1 && engine.arrival != nil }
            let last = steps.all.suffix(2)
            #expect(last.map(\.to) == [.suspended, .background] && last.map(\.cause) == [cause, cause])
        }
        #expect(steps.all.count == before + 6 && engine.current == .background)
        #expect(engine.arrival == false, "what was not saved once does not count as saved later")
        #expect(gaps.all.map(\.gap) == [freeze, freeze, sleep, freeze])
        #expect(gaps.all.map(\.from) == [.active, .suspended, .suspended, .suspended])
        #expect(gaps.all.map(\.to) == [.active, .background, .background, .background])
        #expect(gaps.all.allSatisfy { $0.deadline == .seconds(15) })
    }

    @Test func `a step leads down if its target is lower, and a launch never does`() {
        for from in LifecycleState.allCases {
            for to in LifecycleState.allCases {
                let step = LifecycleTransition(from: from, to: to, cause: .operator, sequence: 1, at: .zero)
                #expect(step.isDescent == (to < from && from != .notRunning), "\(step)")
            }
        }
    }

    @Test func `the first save has a quarter of the time left, and a fifth of a second at least`() {
        let transition = LifecycleTransition(from: .active, to: .inactive, cause: .operator, sequence: 1, at: .zero)
        let heartbeat = Heartbeat(time: clock.timekeeper)
        for (left, share) in [(4000, 1000), (800, 200), (400, 200), (0, 200), (-5000, 200)] {
            let deadline = Duration.seconds(10) + .milliseconds(left)
            let context = LifecycleContext(transition, deadline: deadline, heartbeat: heartbeat)
            #expect(context.timeRemaining == .milliseconds(max(0, left)), "\(left)")
            #expect(KeepingStages.firstShare(of: context) == .milliseconds(share), "\(left)")
        }
    }
}

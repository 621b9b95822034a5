import Plimsoll
import Synchronization

/// Takes one unit, the process or a scene, from state to state. Takes one step at a time, with all stages of the step
/// (C5).
///
/// A request names the desired state. If an opposite request comes before a step has begun, the step is left out
/// (C9). Steps run on the manager's threads.
final class LifecycleEngine: Sendable {
    /// One part of a step; returns by the deadline.
    typealias Stage = @Sendable (LifecycleContext) async -> FanOut.Outcome

    private struct State {
        var machine = LifecycleMachine()
        var target = LifecycleState.notRunning
        var cause = LifecycleCause.launch
        var budget = Duration.seconds(5)
        /// The deadline of all steps toward the target; set when the first step begins.
        var deadline: Duration?
        var isBusy = false
        var isTerminated = false
        /// True if no handler overran or failed since the engine last rested or took a step up. Requests in between
        /// change nothing.
        var isClean = true
        /// The value of `isClean` on arrival in the background or at termination. `nil` as soon as another step
        /// begins.
        var arrival: Bool?
        var waiters: [Waiter] = []
        var gaps: [RunningGap] = []
    }

    private struct Waiter {
        var report: LifecycleReport
        var began: Duration
        var continuation: CheckedContinuation<LifecycleReport, Never>
    }

    private enum Work {
        case step(LifecycleTransition, deadline: Duration)
        case gap(RunningGap)
        case rest
    }

    private let state = Mutex(State())
    /// Acquiring and releasing: a thread that reads a state sees the work done before that state was entered.
    private let stateBits = Atomic<UInt8>(LifecycleState.notRunning.rawValue)
    private let alarms: Alarms
    private let threads: HandlerThreads
    private let stages: @Sendable (LifecycleTransition) -> [Stage]
    private let afterGap: @Sendable (LifecycleContext) async -> Bool
    private let onStep: @Sendable (LifecycleTransition) -> Void
    /// The time limit of the way back from a gap.
    private static let gapBudget = Duration.seconds(5)

    /// - Parameters:
    ///   - stages: stages of a step, in order.
    ///   - afterGap: work done once the process runs again; returns false if a handler overran or failed.
    ///   - onStep: called with each step when complete.
    init(
        _ alarms: Alarms, _ threads: HandlerThreads, stages: @escaping @Sendable (LifecycleTransition) -> [Stage],
        afterGap: @escaping @Sendable (LifecycleContext) async -> Bool,
        onStep: @escaping @Sendable (LifecycleTransition) -> Void
    ) {
        self.alarms = alarms
        self.threads = threads
        self.stages = stages
        self.afterGap = afterGap
        self.onStep = onStep
    }

    var current: LifecycleState { LifecycleState(rawValue: stateBits.load(ordering: .acquiring)) ?? .notRunning }

    /// True if the way into the background, or to termination, completed without overrun or failure.
    ///
    /// `nil` while the way is in progress, and once a step has begun that leads out again.
    var arrival: Bool? { state.withLock { $0.arrival } }

    /// Runs `body`, which saves and erases again what has changed since the arrival in the background.
    ///
    /// `arrival` is `nil` until `body` has returned. Does nothing in other states, or while a step is in progress.
    ///
    /// - Parameter body: returns false if a handler overran or failed.
    func arriveAgain(_ body: () async -> Bool) async {
        let before = state.withLock { state -> (sequence: UInt64, arrival: Bool)? in
            guard !state.isBusy, state.machine.state == .background, let arrival = state.arrival else { return nil }
            state.arrival = nil
            return (state.machine.sequence, arrival)
        }
        guard let before else { return }
        let isClean = await body()
        // A step taken meanwhile records its own arrival.
        state.withLock { if $0.machine.sequence == before.sequence { $0.arrival = before.arrival && isClean } }
    }

    /// The desired state: the state that the unit moves toward, or is in.
    var target: LifecycleState { state.withLock { $0.target } }

    /// True while a step or the way back from a gap is in progress.
    var isBusy: Bool { state.withLock { $0.isBusy } }

    /// The number of requests that wait for completion. For tests.
    var waiting: Int { state.withLock { $0.waiters.count } }

    /// Moves to the state that `aim` returns. Returns once that state is reached, or another state has been
    /// requested.
    ///
    /// - Parameters:
    ///   - budget: time limit for all steps together.
    ///   - aim: returns the desired state. Called under the lock, so that of two simultaneous requests the better
    ///     informed one wins.
    /// - Throws: `LifecycleError` once the unit has terminated.
    func request(_ cause: LifecycleCause, within budget: Duration, _ aim: @Sendable () -> LifecycleState) async throws
        -> LifecycleReport
    {
        let began = alarms.heartbeat.running
        if state.withLock({ $0.isTerminated && aim() != .notRunning }) {
            throw LifecycleError(
                "cannot become \(aim()) (\(cause.rawValue)) because the process or scene has terminated; request no change after termination"
            )
        }
        return await withCheckedContinuation { continuation in
            let starts = state.withLock { state in
                let target = aim()
                if state.target != target || !state.isBusy {
                    (state.target, state.cause, state.budget, state.deadline) = (target, cause, budget, nil)
                }
                state.waiters.append(
                    Waiter(report: LifecycleReport(target: target), began: began, continuation: continuation))
                return !exchange(&state.isBusy, true)
            }
            if starts { start() }
        }
    }

    /// Handles the end of `gap`, after which the process runs again. The step in progress is finished first.
    func gapEnded(_ gap: RunningGap) {
        let starts = state.withLock { state in
            state.gaps.append(gap)
            return !exchange(&state.isBusy, true)
        }
        if starts { start() }
    }

    // MARK: Working

    private func start() { threads.run { await self.work() } }

    private func work() async {
        while true {
            switch next() {
            case .step(let transition, let deadline): await perform(transition, until: deadline)
            case .gap(let gap): await comeBack(from: gap)
            case .rest: return
            }
        }
    }

    /// Decides the next work, and resumes the requests that are done.
    private func next() -> Work {
        let now = alarms.heartbeat.running
        let (work, done) = state.withLock { state in
            let work = step(&state, now)
            let rests = if case .rest = work { true } else { false }
            let done = state.waiters.filter { rests || $0.report.target != state.target }
            state.waiters.removeAll { rests || $0.report.target != state.target }
            let (target, reached) = (state.target, state.machine.state)
            return (
                work,
                done.map { waiter in
                    var waiter = waiter
                    waiter.report.isSuperseded = waiter.report.target != (rests ? reached : target)
                    waiter.report.took = now - waiter.began
                    return waiter
                }
            )
        }
        for waiter in done { waiter.continuation.resume(returning: waiter.report) }
        return work
    }

    private func step(_ state: inout State, _ now: Duration) -> Work {
        if !state.gaps.isEmpty { return .gap(state.gaps.removeFirst()) }
        if state.machine.state == .notRunning, state.machine.sequence > 0 { state.isTerminated = true }
        guard !state.isTerminated, let to = LifecycleMachine.step(from: state.machine.state, toward: state.target),
            let transition = try? state.machine.take(to, cause: state.cause, at: now)
        else {
            (state.isBusy, state.isClean) = (false, true)
            return .rest
        }
        // On the way down, publish the new state first: no thread may believe that the old state still holds. On the
        // way up, publish when all is ready.
        if transition.isDescent { stateBits.store(to.rawValue, ordering: .releasing) }
        state.arrival = nil
        let deadline = state.deadline ?? now + state.budget
        state.deadline = deadline
        return .step(transition, deadline: deadline)
    }

    private func perform(_ transition: LifecycleTransition, until deadline: Duration) async {
        var context = LifecycleContext(transition, deadline: deadline, heartbeat: alarms.heartbeat)
        context.isLast = state.withLock { $0.target == transition.to }
        for stage in stages(transition) {
            let outcome = await stage(context)
            state.withLock { state in
                for index in state.waiters.indices { state.waiters[index].report.add(outcome) }
                if !outcome.isClean { state.isClean = false }
            }
        }
        stateBits.store(transition.to.rawValue, ordering: .releasing)
        state.withLock { state in
            for index in state.waiters.indices { state.waiters[index].report.transitions.append(transition) }
            if transition.to == .background || transition.to == .notRunning { state.arrival = state.isClean }
            if !transition.isDescent { state.isClean = true }
        }
        onStep(transition)
    }

    /// Records that the process was suspended in the background, which is known only now (C4, C17).
    private func comeBack(from gap: RunningGap) async {
        let now = alarms.heartbeat.running
        var arrival: Bool?
        let steps: [LifecycleTransition] = state.withLock { state in
            guard state.machine.state == .background else { return [] }
            // Code that runs now may change saved state. The arrival is unknown until that state is saved again
            // (C46).
            arrival = state.arrival
            state.arrival = nil
            let cause = gap.kind == .hostSleep ? LifecycleCause.hostSleep : .thaw
            return [LifecycleState.suspended, .background].compactMap {
                try? state.machine.take($0, cause: cause, at: now)
            }
        }
        for step in steps { onStep(step) }
        let here = current
        let transition =
            steps.last
            ?? LifecycleTransition(
                from: here, to: here, cause: .thaw, sequence: state.withLock { $0.machine.sequence }, at: now)
        let isClean = await afterGap(
            LifecycleContext(transition, deadline: now + Self.gapBudget, heartbeat: alarms.heartbeat, gap: gap))
        if !steps.isEmpty { state.withLock { $0.arrival = (arrival ?? false) && isClean } }
    }
}

extension LifecycleTransition {
    /// True if the step leads away from the front.
    var isDescent: Bool { to < from && from != .notRunning }
}

import Synchronization

/// Takes one unit, the process or a scene, from state to state: one step at a time, each with all its stages (C5).
///
/// A request names where to be; opposite requests that come before a step has begun leave it out (C9). Steps run on the manager's threads.
final class LifecycleEngine: Sendable {
    /// One part of a step; it returns by the deadline.
    typealias Stage = @Sendable (LifecycleContext) async -> FanOut.Outcome

    private struct State {
        var machine = LifecycleMachine()
        var target = LifecycleState.notRunning
        var cause = LifecycleCause.launch
        var budget = Duration.seconds(5)
        /// Until when all steps toward the target may take; known when the first begins.
        var deadline: Duration?
        var isBusy = false
        var isTerminated = false
        /// Whether nothing overran or failed on the present way, whoever asked for it and when.
        var isClean = true
        /// Where that ended, if in the background or at the end: `isClean` then. `nil` as soon as a step leads on.
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
    /// Acquiring and releasing: who reads a state sees what was done before it was entered.
    private let stateBits = Atomic<UInt8>(LifecycleState.notRunning.rawValue)
    private let alarms: Alarms
    private let threads: HandlerThreads
    private let stages: @Sendable (LifecycleTransition) -> [Stage]
    private let afterGap: @Sendable (LifecycleContext) async -> Bool
    private let onStep: @Sendable (LifecycleTransition) -> Void
    /// What the way back from a gap may take.
    private static let gapBudget = Duration.seconds(5)

    /// - Parameters:
    ///   - stages: what a step consists of, in order.
    ///   - afterGap: what is done once the process runs again; false if anything overran or failed.
    ///   - onStep: hears of each step when it is complete.
    init(
        _ alarms: Alarms, _ threads: HandlerThreads, stages: @escaping @Sendable (LifecycleTransition) -> [Stage],
        afterGap: @escaping @Sendable (LifecycleContext) async -> Bool, onStep: @escaping @Sendable (LifecycleTransition) -> Void
    ) {
        self.alarms = alarms
        self.threads = threads
        self.stages = stages
        self.afterGap = afterGap
        self.onStep = onStep
    }

    var current: LifecycleState { LifecycleState(rawValue: stateBits.load(ordering: .acquiring)) ?? .notRunning }

    /// Whether the way into the background, or to the end, was gone without anything overrun or failed; `nil` while it is under way, and once a step has begun
    /// that leads out again.
    var arrival: Bool? { state.withLock { $0.arrival } }

    /// Runs `body`, which saves and erases again what has changed since the arrival in the background; until that is done
    /// the arrival is not known. Does nothing elsewhere, and on the way.
    ///
    /// - Parameter body: false if anything overran or failed.
    func arriveAgain(_ body: () async -> Bool) async {
        let before = state.withLock { state -> (sequence: UInt64, arrival: Bool)? in
            guard !state.isBusy, state.machine.state == .background, let arrival = state.arrival else { return nil }
            state.arrival = nil
            return (state.machine.sequence, arrival)
        }
        guard let before else { return }
        let isClean = await body()
        // A step taken meanwhile has an arrival of its own.
        state.withLock { if $0.machine.sequence == before.sequence { $0.arrival = before.arrival && isClean } }
    }

    /// Where it is going, or is.
    var target: LifecycleState { state.withLock { $0.target } }

    /// The number of requests that wait for their end. For tests.
    var waiting: Int { state.withLock { $0.waiters.count } }

    /// Goes where `aim` says; returns when it is there or when something else was asked for.
    ///
    /// - Parameters:
    ///   - budget: what all steps of the way may take together.
    ///   - aim: the state to be in, asked under the lock, so that of two requests made at once the one that knows more wins.
    /// - Throws: `LifecycleError` once the unit has terminated.
    func request(_ cause: LifecycleCause, within budget: Duration, _ aim: @Sendable () -> LifecycleState) async throws -> LifecycleReport {
        let began = alarms.heartbeat.running
        if state.withLock({ $0.isTerminated && aim() != .notRunning }) {
            throw LifecycleError(
                "\(aim()) was asked for (\(cause.rawValue)) after termination; a process or scene that has terminated does not come back")
        }
        return await withCheckedContinuation { continuation in
            let starts = state.withLock { state in
                let target = aim()
                if state.target != target || !state.isBusy {
                    (state.target, state.cause, state.budget, state.deadline) = (target, cause, budget, nil)
                }
                state.waiters.append(Waiter(report: LifecycleReport(target: target), began: began, continuation: continuation))
                defer { state.isBusy = true }
                return !state.isBusy
            }
            if starts { start() }
        }
    }

    /// The process runs again after `gap`; what is under way is finished first.
    func gapEnded(_ gap: RunningGap) {
        let starts = state.withLock { state in
            state.gaps.append(gap)
            defer { state.isBusy = true }
            return !state.isBusy
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

    /// Decides what is next, and lets those go whose request is done with.
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
            state.isBusy = false
            return .rest
        }
        // On the way down nobody may believe that the old state still holds; on the way up the new one holds when all is ready.
        if transition.isDescent { stateBits.store(to.rawValue, ordering: .releasing) }
        if state.deadline == nil { state.isClean = true }
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
        }
        onStep(transition)
    }

    /// In the background the process was suspended: nobody could know until now (C4, C17).
    private func comeBack(from gap: RunningGap) async {
        let now = alarms.heartbeat.running
        var arrival: Bool?
        let steps: [LifecycleTransition] = state.withLock { state in
            guard state.machine.state == .background else { return [] }
            // What runs now may change what was saved: it has not arrived again until that is saved anew (C46).
            arrival = state.arrival
            state.arrival = nil
            let cause = gap.kind == .hostSleep ? LifecycleCause.hostSleep : .thaw
            return [LifecycleState.suspended, .background].compactMap { try? state.machine.take($0, cause: cause, at: now) }
        }
        for step in steps { onStep(step) }
        let here = current
        let transition =
            steps.last ?? LifecycleTransition(from: here, to: here, cause: .thaw, sequence: state.withLock { $0.machine.sequence }, at: now)
        let isClean = await afterGap(LifecycleContext(transition, deadline: now + Self.gapBudget, heartbeat: alarms.heartbeat, gap: gap))
        if !steps.isEmpty { state.withLock { $0.arrival = (arrival ?? false) && isClean } }
    }
}

extension LifecycleTransition {
    /// Whether it leads away from the front.
    var isDescent: Bool { to < from && from != .notRunning }
}

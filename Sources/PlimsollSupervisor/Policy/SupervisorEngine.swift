import Plimsoll

/// The engine that decides which action to take on which unit, from the state of all units. A value type: no clock, no
/// kernel calls, no access to units.
///
/// The order follows phones (C75, C77, C90). Frozen units give first, then running units are warned. Then background
/// units are frozen or ended, and foreground units come last. There is one victim at a time: after each, the engine
/// waits for the relief and evaluates all units again.
///
///     let decisions = engine.decide(fleet)          // carry them out, in order
///     engine.learn(outcome)                         // one for each decision, when it is done or given up
///     let wait = engine.nextEvaluation(after: fleet)      // evaluate again then, or when something happens
package struct SupervisorEngine: Sendable, Hashable {
    package var policy: SupervisorPolicy
    /// Units that were spared in the last evaluation although their turn had come, with the reason.
    package private(set) var spared: [Spared] = []

    var memory: [String: UnitHistory] = [:]
    var wait: ReliefWait?
    var pacer = NoticePacer()
    var criticalSince: Duration?
    var calmSince: Duration?
    var lastReturn: Duration?
    /// Time of the last division of the memory for caches, and the bytes divided; `nil` while memory is plentiful.
    var divided: Divided?
    /// Time at which the last wait for relief ended.
    private var relievedAt: Duration?
    /// Fleets older than this were taken before the last outcome.
    private var freshFrom = Duration.zero
    private var due: Duration?

    /// A unit that was spared.
    package struct Spared: Sendable, Hashable {
        package var unit: String
        package var reason: String
    }

    package init(_ policy: SupervisorPolicy = .standard) { self.policy = policy }

    /// Returns the decisions to carry out now, in order.
    ///
    /// Returns no decision for a fleet older than the last one or than the last outcome. Otherwise memory that was
    /// already freed would be requested again.
    package mutating func decide(_ fleet: Fleet) -> [Decision] {
        guard fleet.at >= freshFrom else { return [] }
        freshFrom = fleet.at
        var pass = DecisionPass(fleet, policy: policy, memory: memory)
        note(&pass)
        giveUp(&pass)
        pass.count()
        rollBack(&pass)
        finishWakes(&pass)
        finishLeaving(&pass)
        grantSuspension(&pass)
        throttle(&pass)
        relieve(&pass)
        notify(&pass)
        fillRoom(&pass)
        wake(&pass)
        divide(&pass)
        // Forget units that no longer exist.
        memory.removeAll(keepingCapacity: true)
        for unit in pass.units where unit.memory != UnitHistory() { memory[unit.name] = unit.memory }
        (spared, due) = (pass.spared, pass.due)
        return pass.decisions
    }

    /// Applies the outcome of a decision. Evaluate again afterwards.
    package mutating func learn(_ outcome: Outcome) {
        let decision = outcome.decision, action = decision.action
        if decision.isDryRun { return }
        freshFrom = max(freshFrom, outcome.at)
        var unit = memory[decision.unit] ?? UnitHistory()
        if outcome.failure != nil { unit.fail(action, at: outcome.at, rest: policy.failureRest) }
        if case .reclaim(let asked) = action, outcome.relief < asked * Self.useless {
            unit.fail(action, at: outcome.at, rest: policy.failureRest)
        }
        if unit.pending?.action == action { unit.pending = nil }
        memory[decision.unit] = unit
        guard wait?.unit == decision.unit, wait?.action == action else { return }
        if wait?.learn(outcome, coolDown: policy.coolDown) == false { (wait, relievedAt) = (nil, outcome.at) }
    }

    /// Returns the time from `fleet` until the next evaluation is due without any event; `nil` if none is due. `fleet`
    /// must be the last fleet that was decided on.
    package func nextEvaluation(after fleet: Fleet) -> Duration? { due.map { max(Self.leastWait, $0 - fleet.at) } }

    /// Reclaiming less than this share of the request counts as failed: the rest is in use, or there is no swap.
    static let useless = 0.1
    /// The minimum time between evaluations without an event.
    static let leastWait = Duration.milliseconds(50)

    /// Updates the pending actions and waits from the new reports.
    private mutating func note(_ pass: inout DecisionPass) {
        pacer.note(pass.level, at: pass.at)
        criticalSince = pass.level == .critical ? criticalSince ?? pass.at : nil
        calmSince = pass.level == .normal && pass.fleet.shortfall <= .zero ? calmSince ?? pass.at : nil
        for index in pass.units.indices {
            if let retry = pass.units[index].memory.forgetFailures(at: pass.at) { pass.remind(at: retry) }
            pass.units[index].memory.noteEnd(pass.units[index].report, at: pass.at)
            guard let pending = pass.units[index].memory.pending else {
                // The unit runs, so there is no footprint left to restore.
                if pass.units[index].runs, pass.units[index].memory.wokenAt == nil {
                    pass.units[index].memory.footprint = nil
                }
                continue
            }
            if pass.at > pending.at, pending.isShown(by: pass.units[index].report) {
                pass.units[index].memory.pending = nil
            } else if pass.at >= pending.until {
                if !policy.isDryRun {
                    pass.units[index].memory.fail(pending.action, at: pass.at, rest: policy.failureRest)
                }
                pass.units[index].memory.pending = nil
            } else {
                pass.remind(at: pending.until)
            }
        }
        if let wait {
            let report = pass.fleet.units.first { $0.name == wait.unit }
            if wait.isOver(report, at: pass.at) {
                (self.wait, relievedAt) = (nil, pass.at)
            } else {
                pass.remind(at: wait.until)
            }
        }
        // The wait is bounded: the measuring thread may be stuck.
        if let relievedAt, pass.fleet.measuredAt < relievedAt, pass.at < relievedAt + policy.coolDown {
            pass.waitForMeasurement(until: relievedAt + policy.coolDown)
        }
    }

    /// Rolls back freezes that were not confirmed, and tries again later where the thaw fails. A half-frozen unit does
    /// no work and frees no memory (K36, T32).
    private mutating func rollBack(_ pass: inout DecisionPass) {
        for index in pass.units.indices where pass.units[index].memory.needsRollback {
            let unit = pass.units[index], isFrozen = unit.report.state == .suspended
            if unit.report.state == .suspending || isFrozen, unit.memory.hasFailed(.resume, at: pass.at) {
                // Frozen after all, the unit comes back with room.
                if isFrozen { pass.units[index].memory.needsRollback = false }
                continue
            }
            pass.units[index].memory.needsRollback = false
            guard unit.report.state == .suspending || isFrozen else { continue }
            pass.decide(.resume(.room), of: index, "the unit could not be suspended")
            pass.units[index].memory.pending?.isRollback = true
        }
    }
}

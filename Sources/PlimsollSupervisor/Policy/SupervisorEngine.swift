import Plimsoll

/// Decides what is done to which unit, from what is known of all of them. A value: no clock, no kernel, no unit.
///
/// The order is that of phones (C75, C77, C90): what stands still gives first, then what runs is warned, then what is in the background is made to
/// stand still or ended, and what somebody waits for comes last. One victim at a time: after each the relief is waited for and all are looked at again.
///
///     let decisions = engine.decide(fleet)          // carry them out, in order
///     engine.learn(outcome)                         // one for each decision, when it is done or given up
///     let wait = engine.nextLook(after: fleet)      // look again then, or when something happens
public struct SupervisorEngine: Sendable, Hashable {
    public var policy: SupervisorPolicy
    /// Units that were not touched in the last look although it was their turn, and why.
    public private(set) var spared: [Spared] = []

    var memory: [String: UnitMemory] = [:]
    var wait: ReliefWait?
    var pacer = NoticePacer()
    var criticalSince: Duration?
    var calmSince: Duration?
    var lastReturn: Duration?
    /// When the last wait for relief was over.
    private var relievedAt: Duration?
    /// Reports older than this were taken before the last outcome.
    private var freshFrom = Duration.zero
    private var due: Duration?

    /// A unit that was let be.
    public struct Spared: Sendable, Hashable {
        public var unit: String
        public var reason: String
    }

    public init(_ policy: SupervisorPolicy = .standard) { self.policy = policy }

    /// What is to be done now, in this order.
    ///
    /// Decides nothing from a fleet that is older than the last one, or than the last outcome: memory that has gone would be asked for again.
    public mutating func decide(_ fleet: Fleet) -> [Decision] {
        guard fleet.at >= freshFrom else { return [] }
        freshFrom = fleet.at
        var look = Look(fleet, policy: policy, memory: memory)
        note(&look)
        giveUp(&look)
        look.count()
        rollBack(&look)
        finishWakes(&look)
        finishLeaving(&look)
        grantStandstill(&look)
        throttle(&look)
        relieve(&look)
        notify(&look)
        fillRoom(&look)
        wake(&look)
        // What is no more is forgotten.
        memory.removeAll(keepingCapacity: true)
        for unit in look.units where unit.memory != UnitMemory() { memory[unit.name] = unit.memory }
        (spared, due) = (look.spared, look.due)
        return look.decisions
    }

    /// What came of a decision. Look again afterwards.
    public mutating func learn(_ outcome: Outcome) {
        let decision = outcome.decision, action = decision.action
        if decision.isDryRun { return }
        freshFrom = max(freshFrom, outcome.at)
        var unit = memory[decision.unit] ?? UnitMemory()
        if unit.pending?.action == action { unit.pending = nil }
        if outcome.failure != nil { unit.fail(action, at: outcome.at, rest: policy.failureRest) }
        if case .pushOut(let asked) = action, outcome.relief < asked * Self.useless { unit.fail(action, at: outcome.at, rest: policy.failureRest) }
        memory[decision.unit] = unit
        guard wait?.unit == decision.unit, wait?.action == action else { return }
        if wait?.learn(outcome, coolDown: policy.coolDown) == false { (wait, relievedAt) = (nil, outcome.at) }
    }

    /// How long after `fleet`, the last that was decided on, something becomes due without any event; `nil` if nothing does.
    public func nextLook(after fleet: Fleet) -> Duration? { due.map { max(Self.leastWait, $0 - fleet.at) } }

    /// Whether the unit can't be ended for now, because that failed a moment ago.
    package func isPassedOver(_ unit: String, at now: Duration) -> Bool { memory[unit]?.hasFailed(.kill, at: now) ?? false }

    /// Pushing out less than this share of what was asked was no use: the rest is in use, or there is no swap for it.
    static let useless = 0.1
    /// Never looked at again sooner than this without an event.
    static let leastWait = Duration.milliseconds(50)

    /// Brings up to date what was being waited for.
    private mutating func note(_ look: inout Look) {
        pacer.note(look.level, at: look.at)
        criticalSince = look.level == .critical ? criticalSince ?? look.at : nil
        calmSince = look.level == .normal && look.fleet.shortfall <= .zero ? calmSince ?? look.at : nil
        for index in look.units.indices {
            if let retry = look.units[index].memory.forgetFailures(at: look.at) { look.remind(at: retry) }
            look.units[index].memory.noteEnd(look.units[index].report, at: look.at)
            guard let pending = look.units[index].memory.pending else {
                // It runs, so nothing that was taken from it has to be given back.
                if look.units[index].runs, look.units[index].memory.wokenAt == nil { look.units[index].memory.footprint = nil }
                continue
            }
            if look.at > pending.at, pending.isShown(by: look.units[index].report) {
                look.units[index].memory.pending = nil
            } else if look.at >= pending.until {
                look.units[index].memory.pending = nil
                if !policy.isDryRun { look.units[index].memory.fail(pending.action, at: look.at, rest: policy.failureRest) }
            } else {
                look.remind(at: pending.until)
            }
        }
        if let wait {
            let report = look.fleet.units.first { $0.name == wait.unit }
            if wait.isOver(report, at: look.at) { (self.wait, relievedAt) = (nil, look.at) } else { look.remind(at: wait.until) }
        }
        // Not for ever: whoever measures may be what is stuck.
        if let relievedAt, look.fleet.measuredAt < relievedAt, look.at < relievedAt + policy.coolDown {
            look.waitForMeasurement(until: relievedAt + policy.coolDown)
        }
    }

    /// A freeze that never was confirmed is taken back at once: a unit half frozen serves nobody and frees nothing (K36, T32).
    private mutating func rollBack(_ look: inout Look) {
        for index in look.units.indices where look.units[index].memory.needsRollback {
            look.units[index].memory.needsRollback = false
            guard look.units[index].report.state == .suspending || look.units[index].report.state == .suspended else { continue }
            look.decide(.resume(.room), of: index, "it could not be made to stand still")
        }
    }
}

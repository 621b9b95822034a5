import Plimsoll

/// One look at all units, and what is decided in it.
struct Look {
    let fleet: Fleet
    let policy: SupervisorPolicy
    var units: [Candidate]
    private(set) var decisions: [Decision] = []
    private(set) var spared: [SupervisorEngine.Spared] = []
    /// When to look again at the latest.
    private(set) var due: Duration?
    /// What is short beyond what units that are ending will give.
    private(set) var needed = ByteCount.zero
    /// What is short was measured before the last unit gave: how much of it is left isn't known until it is measured again.
    private var isOutdated = false

    init(_ fleet: Fleet, policy: SupervisorPolicy, memory: [String: UnitMemory]) {
        (self.fleet, self.policy) = (fleet, policy)
        units = fleet.units.map { Candidate($0, memory: memory[$0.name] ?? UnitMemory(), policy: policy) }
        Dependants.raise(&units)
    }

    /// Counts on those that are ending, but not for ever, and not on those that were given up.
    mutating func count() {
        var needed = fleet.shortfall
        let longest = policy.grace + policy.graceExtension + policy.coolDown
        for unit in units where unit.report.state == .ending && !unit.memory.isGivenUp && at - unit.report.since < longest {
            needed -= unit.report.charge
            remind(at: unit.report.since + longest)
        }
        self.needed = level == .normal || isOutdated ? .zero : max(.zero, needed)
    }

    var at: Duration { fleet.at }
    var level: PressureLevel { fleet.level }
    var isShort: Bool { needed > .zero }
    /// Until nothing is left; `nil` if it isn't known, or if there is no such end.
    var timeLeft: Duration? { isOutdated ? nil : fleet.timeLeft }

    /// How the shortage reads in a reason.
    var shortage: String { "\(fleet.level): \(fleet.shortfall) short" }

    /// Asks nobody for anything until it is measured again, or `time`.
    mutating func waitForMeasurement(until time: Duration) {
        isOutdated = true
        remind(at: time)
    }

    mutating func remind(at time: Duration) {
        // What is due already is decided in this look, or waits for something else.
        guard time > at else { return }
        due = due.map { min($0, time) } ?? time
    }

    mutating func spare(_ index: Int, _ reason: String) { spared.append(.init(unit: units[index].name, reason: reason)) }

    /// Only says it: what notices are, as nothing has to be waited for.
    mutating func tell(_ action: UnitAction, to index: Int, _ reason: String) {
        units[index].isTaken = true
        decisions.append(Decision(at: at, unit: units[index].name, action: action, reason: reason, isDryRun: policy.isDryRun))
    }

    /// Decides, and expects an outcome.
    mutating func decide(_ action: UnitAction, of index: Int, _ reason: String) {
        tell(action, to: index, reason)
        var time = policy.answerTime
        if case .end(let ending) = action {
            time = policy.coolDown
            if case .ask(let grace) = ending { time += grace }
        }
        // Nothing will come of it, so it would be said again and again.
        if policy.isDryRun { time = policy.failureRest }
        units[index].memory.pending = .init(action: action, at: at, until: at + time)
        remind(at: at + time)
    }
}

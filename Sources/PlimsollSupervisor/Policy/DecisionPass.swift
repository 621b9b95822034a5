import Plimsoll

/// One evaluation of all units, with the decisions made.
struct DecisionPass {
    let fleet: Fleet
    let policy: SupervisorPolicy
    var units: [UnitSnapshot]
    private(set) var decisions: [Decision] = []
    private(set) var spared: [SupervisorEngine.Spared] = []
    /// The latest time for the next evaluation.
    private(set) var due: Duration?
    /// The shortfall that remains after the memory that ending units will free.
    private(set) var needed = ByteCount.zero
    /// True if the shortfall was measured before the last relief, or long ago. The rest of the shortfall is unknown
    /// until the next measurement.
    private var isOutdated: Bool
    /// Age from which on a measurement is of no use. One follows each second, so either none is possible now, or the
    /// whole machine was paused.
    private static let longAgo = Duration.seconds(10)

    init(_ fleet: Fleet, policy: SupervisorPolicy, memory: [String: UnitHistory]) {
        (self.fleet, self.policy) = (fleet, policy)
        isOutdated = fleet.at - fleet.measuredAt > Self.longAgo
        units = fleet.units.map { UnitSnapshot($0, memory: memory[$0.name] ?? UnitHistory(), policy: policy) }
        PriorityInheritance.raise(&units)
    }

    /// Subtracts the charge of ending units from the shortfall. Units that were given up, or take too long, are not
    /// counted.
    mutating func count() {
        var needed = fleet.shortfall
        let longest = policy.grace + policy.graceExtension + policy.coolDown
        for unit in units
        where unit.report.state == .ending && !unit.memory.isGivenUp && at - unit.report.since < longest {
            needed -= unit.report.charge
            remind(at: unit.report.since + longest)
        }
        self.needed = level == .normal || isOutdated ? .zero : max(.zero, needed)
    }

    var at: Duration { fleet.at }
    var level: PressureLevel { fleet.level }
    var isShort: Bool { needed > .zero }
    /// Time until memory is exhausted; `nil` if unknown or if no exhaustion is expected.
    var timeLeft: Duration? { isOutdated ? nil : fleet.timeLeft }

    /// The shortage as worded in a reason.
    var shortage: String { "\(fleet.level): \(fleet.shortfall) short" }

    /// Stops asking units for memory until the next measurement, or until `time`.
    mutating func waitForMeasurement(until time: Duration) {
        isOutdated = true
        remind(at: time)
    }

    mutating func remind(at time: Duration) {
        // Work that is already due is decided in this evaluation, or waits for something else.
        guard time > at else { return }
        due = due.map { min($0, time) } ?? time
    }

    mutating func spare(_ index: Int, _ reason: String) {
        spared.append(.init(unit: units[index].name, reason: reason))
    }

    /// Records a decision with no outcome to wait for, such as a notice.
    mutating func record(_ action: UnitAction, to index: Int, _ reason: String) {
        units[index].isTaken = true
        decisions.append(
            Decision(at: at, unit: units[index].name, action: action, reason: reason, isDryRun: policy.isDryRun))
    }

    /// Records a decision and expects an outcome.
    mutating func decide(_ action: UnitAction, of index: Int, _ reason: String) {
        record(action, to: index, reason)
        var time = policy.answerTime
        if case .end(let ending) = action {
            time = policy.coolDown
            if case .ask(let grace) = ending { time += grace }
        }
        // A dry run has no effects, so the same decision would repeat at every evaluation.
        if policy.isDryRun { time = policy.failureRest }
        units[index].memory.pending = .init(action: action, at: at, until: at + time)
        remind(at: at + time)
    }
}

import Plimsoll

/// The wait that enforces one victim at a time. After a step, the supervisor waits for the relief before the next step.
/// Memory takes a while to be freed after a process ends (K39), and two kills for one shortage do harm.
struct ReliefWait: Sendable, Hashable {
    var unit: String
    var action: UnitAction
    var at: Duration
    /// The unit's charge at that time.
    var charge: ByteCount
    /// The time at which the wait ends in any case.
    var until: Duration

    /// Share of the charge that may remain: page cache moves to other readers of the same files.
    static let rest = 0.05

    /// Returns true if the unit's memory has been freed, by a report newer than the step. `nil` stands for a unit that
    /// was removed.
    func isOver(_ report: UnitReport?, at now: Duration) -> Bool {
        guard now < until, let report else { return true }
        guard now > at else { return false }
        if case .pushOut(let asked) = action {
            return report.state != .suspended || report.charge <= charge - asked * 0.9
        }
        return report.charge <= charge * Self.rest || report.since > at && report.state == .starting
    }

    /// Applies the outcome of the step. Returns `false` once there is nothing more to wait for.
    mutating func learn(_ outcome: Outcome, coolDown: Duration) -> Bool {
        if outcome.failure != nil || outcome.decision.action.kind == .pushOut { return false }
        if outcome.relief >= charge * (1 - Self.rest) { return false }
        // The unit has ended, and its memory is still being freed.
        until = min(until, outcome.at + coolDown)
        return true
    }
}

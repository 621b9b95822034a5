import Plimsoll

/// One victim at a time: after a step, what it brings is waited for before the next, as memory takes a while to go after a process has (K39) and
/// killing twice for one shortage is harm.
struct ReliefWait: Sendable, Hashable {
    var unit: String
    var action: UnitAction
    var at: Duration
    /// What was charged to the unit then.
    var charge: ByteCount
    /// When the wait is over in any case.
    var until: Duration

    /// Up to this share of the charge may stay: page cache goes to whoever else reads the files.
    static let rest = 0.05

    /// Whether the unit's memory has gone, by a report that is newer than the step; `nil` stands for a unit that is no more.
    func isOver(_ report: UnitReport?, at now: Duration) -> Bool {
        guard now < until, let report else { return true }
        guard now > at else { return false }
        if case .pushOut(let asked) = action { return report.state != .suspended || report.charge <= charge - asked * 0.9 }
        return report.charge <= charge * Self.rest || report.since > at && report.state == .starting
    }

    /// What came of the step; `false` once nothing more is to be waited for.
    mutating func learn(_ outcome: Outcome, coolDown: Duration) -> Bool {
        if outcome.failure != nil || outcome.decision.action.kind == .pushOut { return false }
        if outcome.relief >= charge * (1 - Self.rest) { return false }
        // It has ended, and its memory is still going.
        until = min(until, outcome.at + coolDown)
        return true
    }
}

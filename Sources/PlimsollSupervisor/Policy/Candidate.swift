import Plimsoll

/// A unit as seen by one evaluation.
struct Candidate {
    let report: UnitReport
    var memory: UnitMemory
    /// The importance of the unit, raised to that of the most important foreground unit that depends on this one.
    var importance: Int
    /// True if the unit is in the foreground, or a foreground unit depends on this one.
    var isInFront: Bool
    /// True if the unit was relaunched soon after its last end. Ending such a unit again frees memory only for a
    /// moment.
    var comesBack: Bool
    /// True if this evaluation already made a decision for the unit.
    var isTaken = false

    init(_ report: UnitReport, memory: UnitMemory, policy: SupervisorPolicy) {
        (self.report, self.memory) = (report, memory)
        importance = min(1000, max(0, report.importance))
        isInFront = report.role == .foreground && report.backgroundSince == nil
        comesBack = report.relaunchGap.map { $0 < policy.relaunchGap } ?? false
    }

    var name: String { report.name }
    /// True if no decision was made in this evaluation and no earlier action is pending.
    var isFree: Bool { !isTaken && memory.pending == nil }
    var runs: Bool { report.state == .running || report.state == .starting }
    var hears: Bool { runs || report.state == .leaving }
    var canEnd: Bool { report.state != .stopped && report.state != .ending }

    func canEnd(at now: Duration) -> Bool { canEnd && !memory.hasFailed(.kill, at: now) }

    /// Returns true if the unit can be frozen, as far as is known.
    func canStand(at now: Duration) -> Bool {
        report.suspension != .never && !report.exitsOnSuspend && !report.holdsLocks
            && !memory.hasFailed(.suspend, at: now)
    }

    /// The deadline for the unit to become ready to be frozen, including its background tasks (T33).
    func leaveEnd(_ policy: SupervisorPolicy) -> Duration {
        let end = report.since + policy.leaveTime
        guard report.tokens > 0 else { return end }
        return max(end, min(report.tokensEnd ?? .seconds(Int64.max / 4), end + policy.graceExtension))
    }

    /// Time from SIGTERM to SIGKILL. Live background tasks extend this time, up to a bound.
    func grace(_ policy: SupervisorPolicy, at now: Duration) -> Duration {
        guard report.tokens > 0 else { return policy.grace }
        let wanted = report.tokensEnd.map { max(policy.grace, $0 - now) } ?? policy.grace + policy.graceExtension
        return min(wanted, policy.grace + policy.graceExtension)
    }
}

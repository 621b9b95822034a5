import Plimsoll

/// A unit as one look sees it.
struct Candidate {
    let report: UnitReport
    var memory: UnitMemory
    /// As important as the most important unit in front that needs it.
    var importance: Int
    /// Somebody waits for it, or for a unit that needs it.
    var isInFront: Bool
    /// When it was ended last it came straight back: ending it again would bring nothing for longer than a moment.
    var comesBack: Bool
    /// Something was decided for it in this look.
    var isTaken = false

    init(_ report: UnitReport, memory: UnitMemory, policy: SupervisorPolicy) {
        (self.report, self.memory) = (report, memory)
        importance = min(1000, max(0, report.importance))
        isInFront = report.role == .foreground && report.backgroundSince == nil
        comesBack = report.relaunchGap.map { $0 < policy.relaunchGap } ?? false
    }

    var name: String { report.name }
    /// Nothing is under way with it.
    var isFree: Bool { !isTaken && memory.pending == nil }
    var runs: Bool { report.state == .running || report.state == .starting }
    var hears: Bool { runs || report.state == .leaving }
    var canEnd: Bool { report.state != .stopped && report.state != .ending }

    func canEnd(at now: Duration) -> Bool { canEnd && !memory.hasFailed(.kill, at: now) }

    /// Whether it can be made to stand still, as far as is known.
    func canStand(at now: Duration) -> Bool {
        report.suspension != .never && !report.exitsOnSuspend && !report.holdsLocks && !memory.hasFailed(.suspend, at: now)
    }

    /// When it must have become ready to stand still, background tasks included (T33).
    func leaveEnd(_ policy: SupervisorPolicy) -> Duration {
        let end = report.since + policy.leaveTime
        guard report.tokens > 0 else { return end }
        return max(end, min(report.tokensEnd ?? .seconds(Int64.max / 4), end + policy.graceExtension))
    }

    /// From SIGTERM to SIGKILL: longer for background tasks that are alive, up to a bound.
    func grace(_ policy: SupervisorPolicy, at now: Duration) -> Duration {
        guard report.tokens > 0 else { return policy.grace }
        let wanted = report.tokensEnd.map { max(policy.grace, $0 - now) } ?? policy.grace + policy.graceExtension
        return min(wanted, policy.grace + policy.graceExtension)
    }
}

import Plimsoll

/// State kept about a unit between evaluations: only the facts that reports can't give.
struct UnitHistory: Sendable, Hashable {
    /// A decision whose result is not yet known from an outcome or a report. No other decision is made for the unit
    /// until then.
    struct Pending: Sendable, Hashable {
        var action: UnitAction
        var at: Duration
        /// The time at which the action counts as failed.
        var until: Duration
        /// True if the action undoes a freeze that was not confirmed.
        var isRollback = false
    }

    var pending: Pending?
    /// The last notice sent, since reports may be older.
    var notice: Notice?
    /// Time since which the unit runs only because of a keep-alive wake.
    var wokenAt: Duration?
    /// The unit's charge before this supervisor froze or ended the unit; `nil` if another party did.
    var footprint: ByteCount?
    /// Progress of the unit's end; `nil` while the unit isn't ending.
    private(set) var end: End?
    /// True if memory won't last until the unit ends. Its charge no longer counts as expected relief.
    var isGivenUp = false
    /// Bytes that the unit's caches held when memory was last plentiful: what they are entitled to, whatever the unit
    /// says that memory is worth.
    var entitled: Int?
    /// True if the unit's freeze was not confirmed and must be undone (T32).
    var needsRollback = false
    /// Failed steps, each with the time until which there is no retry.
    private var failed: [Failure] = []

    struct Notice: Sendable, Hashable {
        var level: PressureLevel
        var at: Duration
    }

    /// Progress of an end.
    struct End: Sendable, Hashable {
        /// The lowest charge so far.
        var least: ByteCount
        /// Time since which the charge has not fallen by more than the last few percent.
        var since: Duration
    }

    private struct Failure: Sendable, Hashable {
        var step: Step
        var until: Duration
    }

    /// The steps that can fail independently: a kill may succeed where a request to end failed.
    enum Step: Sendable, Hashable { case ask, kill, other(UnitAction.Kind) }

    func hasFailed(_ step: Step, at now: Duration) -> Bool { failed.contains { $0.step == step && now < $0.until } }
    func hasFailed(_ kind: UnitAction.Kind, at now: Duration) -> Bool { hasFailed(.other(kind), at: now) }

    /// Removes failures that may be retried. Returns the time of the next retry.
    mutating func forgetFailures(at now: Duration) -> Duration? {
        failed.removeAll { now >= $0.until }
        return failed.map(\.until).min()
    }

    /// Records the progress of the unit's end.
    mutating func noteEnd(_ report: UnitReport, at now: Duration) {
        guard report.state == .ending else {
            if end != nil { (end, isGivenUp) = (nil, false) }
            return
        }
        guard let end else { return self.end = End(least: report.charge, since: report.since) }
        if report.charge < end.least * 0.98 { self.end = End(least: report.charge, since: now) }
    }

    /// Records a failed action. Call this before `pending` is cleared: a rollback that failed is needed again.
    mutating func fail(_ action: UnitAction, at now: Duration, rest: Duration) {
        failed.removeAll { now >= $0.until || $0.step == action.step }
        failed.append(Failure(step: action.step, until: now + rest))
        if action == .suspend {
            needsRollback = true
            // The rollback does not wait because of an earlier return that failed.
            failed.removeAll { $0.step == UnitAction.resume(.room).step }
        }
        if let pending, pending.isRollback, pending.action == action { needsRollback = true }
        if action == .resume(.keepAlive) { wokenAt = nil }
    }

    /// The level known to the unit, and since when. Taken from the report, or from a notice too new for the report.
    func notified(_ report: UnitReport) -> (level: PressureLevel, at: Duration?) {
        guard let notice, notice.at > report.notifiedAt ?? .seconds(-1) else {
            return (report.notified, report.notifiedAt)
        }
        // A process started after the notice has not received that notice.
        if report.since > notice.at, report.notifiedAt == nil || report.state == .starting {
            return (report.notified, report.notifiedAt)
        }
        return (notice.level, notice.at)
    }
}

extension UnitAction {
    var step: UnitHistory.Step {
        switch self {
        case .end(.ask), .resume(.ending): .ask
        case .end: .kill
        default: .other(kind)
        }
    }
}

extension UnitHistory.Pending {
    /// Returns true if the report, newer than the decision, shows that the action was done.
    func isShown(by report: UnitReport) -> Bool {
        switch action {
        case .background: report.state != .running && report.state != .starting
        case .suspend: report.state == .suspended || report.state == .stopped
        case .resume(.ending), .end: report.state == .stopped || report.state == .starting && report.since > at
        case .resume: report.state != .suspended && report.state != .suspending && report.state != .leaving
        case .throttle(let on): report.isThrottled == on
        case .start: report.state != .stopped
        case .reclaim, .warn, .release, .share: false
        }
    }
}

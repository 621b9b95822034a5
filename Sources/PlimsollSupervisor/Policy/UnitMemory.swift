import Plimsoll

/// What is remembered of a unit from look to look: only what its reports can't say.
struct UnitMemory: Sendable, Hashable {
    /// Something was decided and neither its outcome nor a report has told what came of it. Until then nothing else is decided for the unit.
    struct Pending: Sendable, Hashable {
        var action: UnitAction
        var at: Duration
        /// When it counts as failed.
        var until: Duration
    }

    var pending: Pending?
    /// What it was told last, as reports may be older than that.
    var notice: Notice?
    /// Since when it runs only because it was woken for keep-alive.
    var wokenAt: Duration?
    /// What it was charged before it was made to stand still or ended from here; `nil` if that was somebody else's doing.
    var footprint: ByteCount?
    /// What it has given back since it was told to end; `nil` while it isn't ending.
    private(set) var end: End?
    /// Memory won't last until its end: it is counted on no more.
    var isGivenUp = false
    /// Its freeze was not confirmed: it has to be let go again (T32).
    var needsRollback = false
    /// Until when steps that failed are not tried again.
    private var failed: [Failure] = []

    struct Notice: Sendable, Hashable {
        var level: PressureLevel
        var at: Duration
    }

    /// How far an end has got.
    struct End: Sendable, Hashable {
        /// The least that was charged so far.
        var least: ByteCount
        /// Since when it is no less, but for the last percents.
        var since: Duration
    }

    private struct Failure: Sendable, Hashable {
        var step: Step
        var until: Duration
    }

    /// What can fail on its own: where asking a unit to end failed, killing it may not.
    enum Step: Sendable, Hashable { case ask, kill, other(UnitAction.Kind) }

    func hasFailed(_ step: Step, at now: Duration) -> Bool { failed.contains { $0.step == step && now < $0.until } }
    func hasFailed(_ kind: UnitAction.Kind, at now: Duration) -> Bool { hasFailed(.other(kind), at: now) }

    /// Forgets what may be tried again; returns when the next may.
    mutating func forgetFailures(at now: Duration) -> Duration? {
        failed.removeAll { now >= $0.until }
        return failed.map(\.until).min()
    }

    /// Takes note of how its end gets on.
    mutating func noteEnd(_ report: UnitReport, at now: Duration) {
        guard report.state == .ending else {
            if end != nil { (end, isGivenUp) = (nil, false) }
            return
        }
        guard let end else { return self.end = End(least: report.charge, since: report.since) }
        if report.charge < end.least * 0.98 { self.end = End(least: report.charge, since: now) }
    }

    mutating func fail(_ action: UnitAction, at now: Duration, rest: Duration) {
        failed.removeAll { now >= $0.until || $0.step == action.step }
        failed.append(Failure(step: action.step, until: now + rest))
        if action == .suspend { needsRollback = true }
    }

    /// The level that the unit knows, and since when: by its report, or by a newer notice that the report can't have seen.
    func told(_ report: UnitReport) -> (level: PressureLevel, at: Duration?) {
        guard let notice, notice.at > report.toldAt ?? .seconds(-1) else { return (report.told, report.toldAt) }
        // A process that came after the notice has not heard it.
        if report.since > notice.at, report.toldAt == nil || report.state == .starting { return (report.told, report.toldAt) }
        return (notice.level, notice.at)
    }
}

extension UnitAction {
    var step: UnitMemory.Step {
        switch self {
        case .end(.ask), .resume(.ending): .ask
        case .end: .kill
        default: .other(kind)
        }
    }
}

extension UnitMemory.Pending {
    /// Whether the report, newer than the decision, shows that it was done.
    func isShown(by report: UnitReport) -> Bool {
        switch action {
        case .background: report.state != .running && report.state != .starting
        case .suspend: report.state == .suspended || report.state == .stopped
        case .resume(.ending), .end: report.state == .stopped || report.state == .starting && report.since > at
        case .resume: report.state != .suspended && report.state != .suspending && report.state != .leaving
        case .throttle(let on): report.isThrottled == on
        case .start: report.state != .stopped
        case .pushOut, .warn, .release: false
        }
    }
}

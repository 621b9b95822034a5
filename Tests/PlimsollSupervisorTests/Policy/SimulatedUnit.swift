import Plimsoll

@testable import PlimsollSupervisor

/// A simulated unit without processes.
struct SimulatedUnit: Sendable, Hashable {
    /// Undesirable behaviours of a real unit.
    struct Habits: OptionSet, Sendable, Hashable {
        let rawValue: Int
        init(rawValue: Int) { self.rawValue = rawValue }

        /// The unit receives warnings and releases nothing.
        static let ignoresWarnings = Habits(rawValue: 1)
        /// The unit's background tasks never end.
        static let refusesToLeave = Habits(rawValue: 2)
        /// The kernel never confirms the unit's freeze.
        static let neverFreezes = Habits(rawValue: 4)
        /// The unit runs again one second after its end.
        static let comesStraightBack = Habits(rawValue: 8)
        /// The unit ends only when killed.
        static let ignoresTerm = Habits(rawValue: 16)
    }

    var report: UnitReport
    /// Number of bytes allocated per second while the unit runs.
    var growth = ByteCount.zero
    /// Share of the charge that is released on request and can be reclaimed while frozen, in `0...1`.
    var spare = 0.0
    var habits: Habits = []
    /// Charge right after the start.
    var initial: ByteCount
    /// Memory reclaimed from the unit, which returns when the unit runs again.
    var reclaimed = ByteCount.zero
    /// Memory that purges and kernel reclaim can still take.
    var cache: ByteCount

    init(_ report: UnitReport, growth: ByteCount = .zero, spare: Double = 0, habits: Habits = []) {
        (self.report, self.growth, self.spare, self.habits) = (report, growth, spare, habits)
        initial = report.charge
        cache = report.charge * spare
    }

    /// The character that stands for the unit in drawings.
    var drawn: Character {
        switch report.state {
        case .running, .starting: report.notified > .normal ? "!" : "="
        case .leaving: "b"
        case .suspending, .suspended: "z"
        case .ending: "x"
        case .stopped: "."
        }
    }

    mutating func enter(_ state: UnitState, at now: Duration) {
        report.state = state
        report.since = now
        report.reclaimable = state == .suspended ? cache : .zero
    }

    /// Starts a new process, with no knowledge of earlier notices.
    mutating func restart(at now: Duration) {
        report.charge = initial
        cache = initial * spare
        reclaimed = .zero
        (report.notified, report.notifiedAt, report.isThrottled, report.throttledSince) = (.normal, nil, false, nil)
        (report.backgroundSince, report.tokens) = (nil, 0)
        enter(.running, at: now)
    }

    mutating func lose(_ amount: ByteCount) -> ByteCount {
        let lost = min(amount, cache, report.charge)
        report.charge -= lost
        cache -= lost
        if report.state == .suspended { report.reclaimable = cache }
        return lost
    }
}

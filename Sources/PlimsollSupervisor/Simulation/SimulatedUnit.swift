package import Plimsoll

/// A unit that exists in numbers only.
package struct SimulatedUnit: Sendable, Hashable {
    /// What a real unit may do that its supervisor would rather it didn't.
    package struct Habits: OptionSet, Sendable, Hashable {
        package let rawValue: Int
        package init(rawValue: Int) { self.rawValue = rawValue }

        /// It hears warnings and gives nothing back.
        package static let ignoresWarnings = Habits(rawValue: 1)
        /// Its background tasks never end.
        package static let refusesToLeave = Habits(rawValue: 2)
        /// The kernel never confirms its freeze.
        package static let neverFreezes = Habits(rawValue: 4)
        /// It is there again a second after its end.
        package static let comesStraightBack = Habits(rawValue: 8)
        /// It ends only when it is killed.
        package static let ignoresTerm = Habits(rawValue: 16)
    }

    package var report: UnitReport
    /// Bytes it takes a second while it runs.
    package var growth = ByteCount.zero
    /// Share of its charge that it gives when asked, and that can be pushed out of it while it stands still, in `0...1`.
    package var spare = 0.0
    package var habits: Habits = []
    /// What it takes when it starts.
    package var initial: ByteCount
    /// What was pushed out of it: it comes back when it runs again.
    var pushedOut = ByteCount.zero
    /// What its purges and the kernel's can still take.
    var cache: ByteCount

    package init(_ report: UnitReport, growth: ByteCount = .zero, spare: Double = 0, habits: Habits = []) {
        (self.report, self.growth, self.spare, self.habits) = (report, growth, spare, habits)
        initial = report.charge
        cache = report.charge * spare
    }

    /// Its character in drawings.
    var drawn: Character {
        switch report.state {
        case .running, .starting: report.told > .normal ? "!" : "="
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

    /// A new process, which knows nothing.
    mutating func restart(at now: Duration) {
        report.charge = initial
        cache = initial * spare
        pushedOut = .zero
        (report.told, report.toldAt, report.isThrottled, report.throttledSince) = (.normal, nil, false, nil)
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

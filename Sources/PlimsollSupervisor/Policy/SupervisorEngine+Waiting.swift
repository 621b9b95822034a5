import Plimsoll

/// The limit on the time of ending units: their wait must not exhaust the memory of all others.
extension SupervisorEngine {
    /// Gives up on ending units that free memory too slowly. This applies at `critical` when all of the following hold:
    ///
    /// - memory is exhausted before the unit must have ended;
    /// - memory is exhausted within the grace time of the next victim;
    /// - the unit has freed nothing for as long as a kill takes to show (K39).
    ///
    /// A unit with nothing to lose is killed now, like a frozen unit (C90). Any other unit keeps its time (T33), and
    /// the next victim is chosen in parallel.
    mutating func giveUp(_ pass: inout DecisionPass) {
        guard pass.level == .critical, let timeLeft = pass.timeLeft else { return }
        let now = pass.at
        for index in pass.units.indices {
            let unit = pass.units[index]
            guard let end = unit.memory.end, !unit.memory.isGivenUp else { continue }
            guard now >= end.since + policy.coolDown else {
                pass.remind(at: end.since + policy.coolDown)
                continue
            }
            let due = unit.memory.pending.map { $0.until - policy.coolDown } ?? unit.report.since + policy.grace
            guard timeLeft < policy.grace, now + timeLeft < due else { continue }
            let isAwaited = wait.map { $0.unit == unit.name } ?? true
            let isSafe = unit.report.isSaved && unit.report.tokens == 0 && !unit.memory.hasFailed(.kill, at: now)
            if isSafe, isAwaited {
                let asked = (now - unit.report.since).wholeMicroseconds / 1_000_000
                step(
                    .end(.kill), on: index, &pass,
                    "the unit was asked \(asked) s ago and has saved its state, and memory lasts for \(timeLeft.wholeMicroseconds / 1000) ms only"
                )
            } else if !isSafe {
                pass.units[index].memory.isGivenUp = true
                if isAwaited { wait = nil }
            }
        }
    }
}

/// The pacing of pressure notices. Units are notified one at a time, and the same level is repeated only after a rest.
/// A lower level is announced only once that level has lasted (C77).
struct NoticePacer: Sendable, Hashable {
    private var last: Duration?
    /// For each level, the time since which the current level has been no higher.
    private var since: [Duration?] = [nil, nil, nil]

    mutating func note(_ level: PressureLevel, at now: Duration) {
        for other in PressureLevel.allCases {
            let index = Int(other.rawValue)
            since[index] = level <= other ? since[index] ?? now : nil
        }
    }

    /// Returns the earliest time for the next notice to any unit.
    func next(_ policy: SupervisorPolicy) -> Duration { last.map { $0 + policy.noticeSpacing } ?? .zero }

    mutating func notified(at now: Duration) { last = now }

    /// Returns the time at which to notify a unit of `level`, given that the unit was last notified of `notified`; `nil`
    /// for no notice.
    ///
    /// - Parameter mayWarn: true if running units may be warned of this shortage.
    func due(
        _ level: PressureLevel, notified: (level: PressureLevel, at: Duration?), mayWarn: Bool,
        _ policy: SupervisorPolicy
    ) -> Duration? {
        if level < notified.level { return since[Int(level.rawValue)].map { $0 + policy.fallHold } }
        guard level > .normal, mayWarn else { return nil }
        if level > notified.level { return .zero }
        return notified.at.map { $0 + policy.noticeRest } ?? .zero
    }
}

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
        if case .reclaim(let asked) = action {
            return report.state != .suspended || report.charge <= charge - asked * 0.9
        }
        return report.charge <= charge * Self.rest || report.since > at && report.state == .starting
    }

    /// Applies the outcome of the step. Returns `false` once there is nothing more to wait for.
    mutating func learn(_ outcome: Outcome, coolDown: Duration) -> Bool {
        if outcome.failure != nil || outcome.decision.action.kind == .reclaim { return false }
        if outcome.relief >= charge * (1 - Self.rest) { return false }
        // The unit has ended, and its memory is still being freed.
        until = min(until, outcome.at + coolDown)
        return true
    }
}

import Plimsoll

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

    mutating func told(at now: Duration) { last = now }

    /// Returns the time at which to notify a unit of `level`, given that the unit was last notified of `told`; `nil`
    /// for no notice.
    ///
    /// - Parameter mayWarn: true if running units may be warned of this shortage.
    func due(
        _ level: PressureLevel, told: (level: PressureLevel, at: Duration?), mayWarn: Bool, _ policy: SupervisorPolicy
    ) -> Duration? {
        if level < told.level { return since[Int(level.rawValue)].map { $0 + policy.fallHold } }
        guard level > .normal, mayWarn else { return nil }
        if level > told.level { return .zero }
        return told.at.map { $0 + policy.noticeRest } ?? .zero
    }
}

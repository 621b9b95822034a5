import Plimsoll

/// When units are told how short memory is: one unit at a time, not the same again too soon, and of relief only when it lasts (C77).
struct NoticePacer: Sendable, Hashable {
    private var last: Duration?
    /// Since when the level has been no higher than each.
    private var since: [Duration?] = [nil, nil, nil]

    mutating func note(_ level: PressureLevel, at now: Duration) {
        for other in PressureLevel.allCases {
            let index = Int(other.rawValue)
            since[index] = level <= other ? since[index] ?? now : nil
        }
    }

    /// When the next unit may be told.
    func next(_ policy: SupervisorPolicy) -> Duration { last.map { $0 + policy.noticeSpacing } ?? .zero }

    mutating func told(at now: Duration) { last = now }

    /// When a unit that was told `told` is to be told `level`; `nil` if not at all.
    ///
    /// - Parameter mayWarn: whether the shortage is one that running units are warned of.
    func due(_ level: PressureLevel, told: (level: PressureLevel, at: Duration?), mayWarn: Bool, _ policy: SupervisorPolicy) -> Duration? {
        if level < told.level { return since[Int(level.rawValue)].map { $0 + policy.fallHold } }
        guard level > .normal, mayWarn else { return nil }
        if level > told.level { return .zero }
        return told.at.map { $0 + policy.noticeRest } ?? .zero
    }
}

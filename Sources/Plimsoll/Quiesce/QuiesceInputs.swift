/// What the extent depends on, and how.
struct QuiesceInputs: Hashable {
    /// The state of the life cycle; `nil` as long as nobody drives it: a manager that never ran is usable.
    var state: LifecycleState?
    var level = PressureLevel.normal
    /// Whether the ladder's rung `quiesce` is in force.
    var isQuiescing = false
    /// Whether the process is on its way back from a gap.
    var isClosed = false
    /// Whether a member has found that a gap has ended which nobody has noticed yet.
    var isLate = false
    /// Credentials that are being revoked just now (C56).
    var revocations = 0

    /// The extent for members with a lease on their class of work, or without.
    ///
    /// A lease carries its class through what the life cycle pauses for the sake of others (C34). It opens nothing on the way back from a freeze,
    /// which is over in moments, nor in a process that has ended, and memory is short for it as for anybody.
    func extent(isLeased: Bool) -> QuiesceExtent {
        let share: QuiesceExtent.Share =
            if isQuiescing {
                .least
            } else {
                switch level {
                case .normal: .whole
                case .warning: .half
                case .critical: .quarter
                }
            }
        if isClosed || isLate || revocations > 0 { return QuiesceExtent(profile: .paused, share: share, isHeld: true) }
        let profile: QuiesceExtent.Profile =
            switch state {
            case nil, .active: .foreground
            case .notRunning: .paused
            case .background: isLeased ? .foreground : .background
            case .inactive, .suspended: isLeased ? .foreground : .paused
            }
        return QuiesceExtent(profile: profile, share: share)
    }
}

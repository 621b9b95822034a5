import Plimsoll

/// The inputs that determine the extent.
struct QuiesceInputs: Hashable {
    /// The state of the life cycle; `nil` while the program drives no life cycle. A manager that never ran is usable.
    var state: LifecycleState?
    var level = PressureLevel.normal
    /// True while the ladder's rung `quiesce` is in force.
    var isQuiescing = false
    /// True while the process is on the way back from a gap.
    var isClosed = false
    /// True if a member has found the end of a gap that no thread has handled yet.
    var isLate = false
    /// Number of credential revocations in progress (C56).
    var revocations = 0

    /// Returns the extent for members with or without a lease on their class of work.
    ///
    /// A lease keeps a class of work going when the life cycle pauses others (C34). A lease has no effect on the way
    /// back from a freeze, which takes only moments, or in a process that has ended. When memory is short, leased
    /// members are narrowed as all others are.
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

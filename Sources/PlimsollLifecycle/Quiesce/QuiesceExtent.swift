import Plimsoll

/// The amount of work that may go on: the value that a quiesce set gives to members.
public struct QuiesceExtent: Sendable, Hashable {
    /// The limit that the life cycle sets on periodic and new work.
    package enum Profile: UInt8, Sendable, Hashable, CaseIterable {
        /// All work goes on.
        case foreground
        /// As little work as possible: one work item at a time, timers coalesced or stopped (C35).
        case background
        /// No new work is admitted; running work is finished.
        case paused
    }

    /// The share of concurrency that remains when memory is short.
    package enum Share: UInt8, Sendable, Hashable, CaseIterable {
        /// All of the concurrency: memory is not short.
        case whole
        /// A half, at the level `warning`.
        case half
        /// A quarter, at the level `critical`.
        case quarter
        /// One piece of work at a time, at the ladder's rung `quiesce`. Members that can't be narrowed follow their
        /// background profile.
        case least
    }

    /// The limit that the life cycle sets.
    package var profile: Profile
    /// The share of that limit that remains when memory is short.
    package var share: Share
    /// True during a brief pause: from a freeze until the process has handled the gap (C17, C60). Then `isPaused` is
    /// true too.
    public var isHeld: Bool

    package init(profile: Profile = .foreground, share: Share = .whole, isHeld: Bool = false) {
        self.profile = profile
        self.share = share
        self.isHeld = isHeld
    }

    /// All work goes on.
    public static let open = QuiesceExtent()
    /// As little work as possible goes on.
    public static let background = QuiesceExtent(profile: .background)
    /// No new work is admitted.
    public static let paused = QuiesceExtent(profile: .paused)
    /// All work goes on, with half of the concurrency: the level is `warning`.
    public static let half = narrowed(to: .half)
    /// All work goes on, with a quarter of the concurrency: the level is `critical`.
    public static let quarter = narrowed(to: .quarter)
    /// One piece of work goes on at a time: the ladder's rung `quiesce` is in force.
    public static let least = narrowed(to: .least)
    /// Returns an extent in which all work goes on, with this share of concurrency.
    package static func narrowed(to share: Share) -> QuiesceExtent { QuiesceExtent(share: share) }

    /// True if the process is in the background.
    public var isBackground: Bool { profile == .background }

    /// True if no new work is admitted.
    public var isPaused: Bool { profile == .paused }

    /// True if members that can't be narrowed (a timer, a serial queue) should follow their background profile.
    ///
    /// This holds outside the foreground, and while memory is so short that the ladder quiesces.
    public var isQuiet: Bool { profile != .foreground || share == .least }

    /// Returns how many of `limit` may run at once: 0 if paused, else at least 1, in the background at most
    /// `inBackground` (0 pauses there too).
    public func count(of limit: Int, inBackground: Int) -> Int {
        let narrowed =
            switch share {
            case .whole: limit
            case .half: max(1, limit / 2)
            case .quarter: max(1, limit / 4)
            case .least: 1
            }
        return switch profile {
        case .foreground: narrowed
        case .background: min(narrowed, inBackground)
        case .paused: 0
        }
    }
}

extension QuiesceExtent: Comparable {
    /// Returns true if `left` allows less work than `right`.
    public static func < (left: QuiesceExtent, right: QuiesceExtent) -> Bool { left.rank > right.rank }

    private var rank: (UInt8, UInt8, Int) { (profile.rawValue, share.rawValue, isHeld ? 1 : 0) }
}

extension QuiesceExtent: CustomStringConvertible {
    public var description: String {
        let profile = isHeld ? "held" : profile == .foreground ? "open" : "\(profile)"
        return share == .whole ? profile : "\(profile), \(share)"
    }
}

extension QuiesceExtent {
    /// The extent in one byte, for publication by one atomic store.
    package var bits: UInt8 { profile.rawValue | share.rawValue << 2 | (isHeld ? 16 : 0) }

    package init(bits: UInt8) {
        self.init(
            profile: Profile(rawValue: bits & 3) ?? .paused, share: Share(rawValue: bits >> 2 & 3) ?? .least,
            isHeld: bits & 16 != 0)
    }
}

/// The inputs that determine the extent.
struct QuiesceInputs: Hashable {
    /// The state of the life cycle; `nil` while the program drives no life cycle. A manager that never ran is usable.
    var state: LifecycleState?
    var level = PressureLevel.normal
    /// True while the ladder's rung `quiesce` is in force.
    var isQuiescing = false
    /// Number of gaps from which the process is still on the way back.
    var gaps = 0
    /// True if a member has found the end of a gap that no thread has handled yet.
    var isLate = false
    /// Number of credential revocations in progress (C56).
    var revocations = 0

    /// Returns the extent for members with or without a lease on their class of work.
    ///
    /// A lease keeps a class of work going when the life cycle pauses others (C34). A lease has no effect on the way
    /// back from a freeze, which takes only moments, or from right before the last save of a process that ends. When
    /// memory is short, leased members are narrowed as all others are.
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
        if gaps > 0 || isLate || revocations > 0 { return QuiesceExtent(profile: .paused, share: share, isHeld: true) }
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

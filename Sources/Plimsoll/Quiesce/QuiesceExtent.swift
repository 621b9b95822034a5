/// How much may go on: what a quiesce set tells its members.
public struct QuiesceExtent: Sendable, Hashable {
    /// What the life cycle leaves of periodic and new work.
    public enum Profile: UInt8, Sendable, Hashable, CaseIterable {
        /// Everything goes on.
        case foreground
        /// As little as possible: one piece of work at a time, timers together or not at all (C35).
        case background
        /// Nothing new is admitted; what runs is finished.
        case paused
    }

    /// What a shortage of memory leaves of concurrency.
    public enum Share: UInt8, Sendable, Hashable, CaseIterable {
        /// All of it: memory is not short.
        case whole
        /// A half, at the level `warning`.
        case half
        /// A quarter, at the level `critical`.
        case quarter
        /// One piece of work at a time, and what can't be narrowed follows its background profile: the ladder's rung `quiesce`.
        case least
    }

    /// What the life cycle leaves.
    public var profile: Profile
    /// What a shortage of memory leaves of that.
    public var share: Share
    /// Whether it is paused for moments only: from a freeze until the process has found its way back (C17, C60). Then `profile` is `paused`.
    public var isHeld: Bool

    /// An extent of those parts.
    public init(profile: Profile = .foreground, share: Share = .whole, isHeld: Bool = false) {
        self.profile = profile
        self.share = share
        self.isHeld = isHeld
    }

    /// Everything goes on.
    public static let open = QuiesceExtent()
    /// As little as possible goes on.
    public static let background = QuiesceExtent(profile: .background)
    /// Nothing new is admitted.
    public static let paused = QuiesceExtent(profile: .paused)
    /// Everything goes on, with so much of its concurrency.
    public static func narrowed(to share: Share) -> QuiesceExtent { QuiesceExtent(share: share) }

    /// Whether nothing new is admitted.
    public var isPaused: Bool { profile == .paused }

    /// Whether what can't be narrowed (a timer, a serial queue) should follow its background profile: in the background, and while memory is so
    /// short that the ladder quiesces.
    public var isQuiet: Bool { profile != .foreground || share == .least }

    /// How many of `limit` may run at once: 0 if paused, else at least 1, in the background at most `inBackground` (0 pauses there too).
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
    /// Whether less goes on by `left` than by `right`.
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
    /// In one byte, so that it can be published by one store.
    var bits: UInt8 { profile.rawValue | share.rawValue << 2 | (isHeld ? 16 : 0) }

    init(bits: UInt8) {
        self.init(profile: Profile(rawValue: bits & 3) ?? .paused, share: Share(rawValue: bits >> 2 & 3) ?? .least, isHeld: bits & 16 != 0)
    }
}

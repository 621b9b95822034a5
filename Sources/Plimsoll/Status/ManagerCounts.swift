/// What a manager has counted since it was made. Numbers only grow.
public struct ManagerCounts: Sendable, Hashable, Codable {
    /// Changes of level, by where to and why.
    public var transitions: [Transition]
    /// What was left out of what others were to be told, by reason.
    public var dropped: [Dropped]
    /// Actions, by what they were, mode and outcome.
    public var actions: [Action]
    /// Releases carried out, whoever wanted them.
    public var releases: Releases

    /// Changes of level to one level on one kind of evidence; a change on several kinds counts for each.
    public struct Transition: Sendable, Hashable, Codable {
        /// The level.
        public var to: String
        /// A name of `PressureEvidence`; `none` for a fall.
        public var source: String
        /// How often.
        public var count: Int
    }

    /// Events that were not told.
    public struct Dropped: Sendable, Hashable, Codable {
        /// `superseded`: a newer one came before delivery; `rested`: the level was announced a short while ago; `overwritten`: a listener was too slow for the
        /// journal.
        public var reason: String
        /// How many.
        public var count: Int
    }

    /// Actions of one kind, mode and outcome.
    public struct Action: Sendable, Hashable, Codable {
        /// What they were (`ActionKind`).
        public var action: String
        /// `live`, `dry run` or `simulated`.
        public var mode: String
        /// `done`, `refused` or `overran`.
        public var outcome: String
        /// How many.
        public var count: Int
    }

    /// What releases asked for and brought.
    public struct Releases: Sendable, Hashable, Codable {
        /// How many.
        public var count = 0
        /// How long they took together.
        public var seconds = 0.0
        /// How many took no longer than each of `bounds`, then how many took longer.
        public var byDuration = [Int](repeating: 0, count: Releases.bounds.count + 1)
        /// What holders were to let go of.
        public var askedBytes = 0
        /// What they said they let go of, but for volatile memory.
        public var releasedBytes = 0
        /// The same of volatile memory.
        public var releasedVolatileBytes = 0
        /// Volatile memory that the kernel was found to have taken.
        public var takenBytes = 0
        /// Measured falls of the resident set, where it fell.
        public var residentFallBytes = 0
        /// Measured falls of the group's usage, where it fell.
        public var usageFallBytes = 0

        /// Seconds, rising.
        public static let bounds = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5]

        /// None yet.
        public init() {}
    }
}

/// The kinds of `PressureAction`, without their parameters.
public enum ActionKind: String, Sendable, Hashable, CaseIterable {
    case warn, release, quiesce
    case expireBackgroundTasks = "expire background tasks"
    case suspend, terminate
    case makeRoom = "make room"
    case noticeDrops = "notice drops"

    /// That of `action`.
    public init(_ action: PressureAction) {
        self =
            switch action {
            case .warn: .warn
            case .release: .release
            case .quiesce: .quiesce
            case .expireBackgroundTasks: .expireBackgroundTasks
            case .suspend: .suspend
            case .makeRoom: .makeRoom
            case .noticeDrops: .noticeDrops
            case .terminate: .terminate
            }
    }

    var index: Int {
        switch self {
        case .warn: 0
        case .release: 1
        case .quiesce: 2
        case .expireBackgroundTasks: 3
        case .suspend: 4
        case .terminate: 5
        case .makeRoom: 6
        case .noticeDrops: 7
        }
    }
}

/// How an action was meant.
public enum ActionMode: String, Sendable, Hashable, CaseIterable {
    case live
    case dryRun = "dry run"
    case simulated

    init(_ report: ActionReport) { self = report.isDryRun || report.outcome == .dryRun ? .dryRun : report.isSimulated ? .simulated : .live }

    var index: Int {
        switch self {
        case .live: 0
        case .dryRun: 1
        case .simulated: 2
        }
    }
}

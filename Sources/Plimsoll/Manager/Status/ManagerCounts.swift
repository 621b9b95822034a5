/// Counts of a manager since creation. Numbers only grow.
package struct ManagerCounts: Sendable, Hashable, Codable {
    /// Changes of level, by new level and evidence.
    package var transitions: [Transition]
    /// Events and reports that were not delivered, by reason.
    package var dropped: [Dropped]
    /// Actions, by kind, mode and outcome.
    package var actions: [Action]
    /// Releases carried out, for any initiator.
    package var releases: Releases

    /// Changes of level to one level on one kind of evidence. A change on several kinds counts for each kind.
    package struct Transition: Sendable, Hashable, Codable {
        /// The new level.
        package var to: String
        /// A name of `PressureEvidence`; `none` for a fall.
        package var source: String
        /// Number of changes.
        package var count: Int
    }

    /// Events that were not delivered.
    package struct Dropped: Sendable, Hashable, Codable {
        /// `superseded`: a newer event came before delivery. `rested`: the level was announced a short while ago.
        /// `overwritten`: a listener was too slow for the journal, or inside a call.
        package var reason: String
        /// Number of events.
        package var count: Int
    }

    /// Actions of one kind, mode and outcome.
    package struct Action: Sendable, Hashable, Codable {
        /// Kind of the actions (`ActionKind`).
        package var action: String
        /// `live`, `dry run` or `simulated`.
        package var mode: String
        /// `done`, `refused` or `overran`.
        package var outcome: String
        /// Number of actions.
        package var count: Int
    }

    /// Requests and measured effects of releases.
    package struct Releases: Sendable, Hashable, Codable {
        /// Number of releases.
        package var count = 0
        /// Total duration.
        package var seconds = 0.0
        /// Number of releases up to each of `bounds`, then the number of longer ones.
        package var byDuration = [Int](repeating: 0, count: Releases.bounds.count + 1)
        /// Bytes requested from purgeables.
        package var askedBytes = 0
        /// Bytes that purgeables report as released, without volatile memory.
        package var releasedBytes = 0
        /// Bytes of volatile memory that purgeables report as released.
        package var releasedVolatileBytes = 0
        /// Volatile memory found to be reclaimed by the kernel.
        package var takenBytes = 0
        /// Sum of the measured falls of the resident set, without increases.
        package var residentFallBytes = 0
        /// Sum of the measured falls of the group's usage, without increases.
        package var usageFallBytes = 0

        /// Upper bounds of the duration histogram in seconds, ascending.
        package static let bounds = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5]

        /// Creates counts of zero.
        package init() {}
    }
}

/// The kinds of `PressureAction`, without their parameters.
package enum ActionKind: String, Sendable, Hashable, CaseIterable {
    case warn, release
    case cancelLargestRequest = "cancel largest request"
    case quiesce
    case expireBackgroundTasks = "expire background tasks"
    case suspend, terminate
    case makeRoom = "make room"
    case noticeDrops = "notice drops"

    /// Returns the kind of `action`.
    package init(_ action: PressureAction) {
        self =
            switch action {
            case .warn: .warn
            case .release: .release
            case .cancelLargestRequest: .cancelLargestRequest
            case .quiesce: .quiesce
            case .expireBackgroundTasks: .expireBackgroundTasks
            case .suspend: .suspend
            case .makeRoom: .makeRoom
            case .noticeDrops: .noticeDrops
            case .terminate: .terminate
            }
    }
}

/// The mode of an action.
package enum ActionMode: String, Sendable, Hashable, CaseIterable {
    case live
    case dryRun = "dry run"
    case simulated

    init(_ report: ActionReport) {
        self = report.isDryRun || report.outcome == .dryRun ? .dryRun : report.isSimulated ? .simulated : .live
    }
}

import Synchronization

/// Counts a manager's events and actions. Counting allocates nothing: a preallocated place exists for each
/// countable combination.
final class ActionTally: Sendable {
    private struct State {
        var transitions = ContiguousArray(repeating: 0, count: PressureLevel.allCases.count * ActionTally.sources.count)
        /// Counts of all kinds, modes and outcomes.
        var actions = Dictionary(uniqueKeysWithValues: ActionTally.rows.map { ($0, 0) })
        var releases = ManagerCounts.Releases()
        var rested = 0
    }

    private struct Row: Hashable {
        var kind: ActionKind
        var mode: ActionMode
        var outcome: Outcome
    }

    private enum Outcome: String, CaseIterable {
        case done, refused, overran

        init(_ outcome: ActionReport.Outcome) {
            self =
                switch outcome {
                case .done, .dryRun: .done
                case .refused: .refused
                case .overran: .overran
                }
        }
    }

    private static var rows: [Row] {
        ActionKind.allCases.flatMap { kind in
            ActionMode.allCases.flatMap { mode in Outcome.allCases.map { Row(kind: kind, mode: mode, outcome: $0) } }
        }
    }

    /// Kinds of evidence for a change of level; the last stands for a fall.
    private static let sources: [PressureEvidence] = [
        .headroom, .growth, .stall, .limitEvents, .limitLowered, .announced, .simulated, [],
    ]

    private let state = Mutex(State())

    /// Counts a change to `level` on `evidence`.
    func moved(to level: PressureLevel, _ evidence: PressureEvidence) {
        state.withLock { state in
            let row = Int(level.rawValue) * Self.sources.count
            for source in 0..<Self.sources.count - 1 where evidence.contains(Self.sources[source]) {
                state.transitions[row + source] += 1
            }
            if evidence.isEmpty { state.transitions[row + Self.sources.count - 1] += 1 }
        }
    }

    /// Counts a level that was not announced because of the rest time.
    func rested() { state.withLock { $0.rested += 1 } }

    func add(_ report: ActionReport) {
        let kind = ActionKind(report.action), mode = ActionMode(report)
        let row = Row(kind: kind, mode: mode, outcome: Outcome(report.outcome))
        state.withLock { state in
            state.actions[row]? += 1
            if kind == .release || kind == .makeRoom || kind == .noticeDrops, mode != .dryRun {
                state.releases.add(report)
            }
        }
    }

    /// Returns all counts. `superseded` and `overwritten` are counted by the registries that drop events.
    func counts(superseded: Int, overwritten: Int) -> ManagerCounts {
        let state = state.withLock { $0 }
        var transitions: [ManagerCounts.Transition] = []
        for level in PressureLevel.allCases {
            for (source, evidence) in Self.sources.enumerated() {
                let count = state.transitions[Int(level.rawValue) * Self.sources.count + source]
                if count > 0 { transitions.append(.init(to: "\(level)", source: "\(evidence)", count: count)) }
            }
        }
        let actions = Self.rows.compactMap { row -> ManagerCounts.Action? in
            guard let count = state.actions[row], count > 0 else { return nil }
            return .init(
                action: row.kind.rawValue, mode: row.mode.rawValue, outcome: row.outcome.rawValue, count: count)
        }
        let dropped: [ManagerCounts.Dropped] = [
            .init(reason: "superseded", count: superseded), .init(reason: "rested", count: state.rested),
            .init(reason: "overwritten", count: overwritten),
        ]
        return ManagerCounts(transitions: transitions, dropped: dropped, actions: actions, releases: state.releases)
    }
}

extension ManagerCounts.Releases {
    mutating func add(_ report: ActionReport) {
        /// Saturates: an operator may ask for any number of bytes.
        func increase(_ sum: inout Int, by bytes: ByteCount) { sum = (ByteCount(sum) + max(.zero, bytes)).bytes }
        let took = report.took.inSeconds
        count += 1
        seconds += took
        var place = 0
        while place < Self.bounds.count, took > Self.bounds[place] { place += 1 }
        byDuration[place] += 1
        increase(&askedBytes, by: report.asked)
        increase(&releasedBytes, by: report.released)
        increase(&releasedVolatileBytes, by: report.releasedVolatile)
        increase(&takenBytes, by: report.taken)
        increase(&residentFallBytes, by: report.residentFall)
        increase(&usageFallBytes, by: report.usageFall)
    }
}

/// An action that was carried out, or would have been.
package struct ActionStatus: Sendable, Hashable, Codable {
    /// Identifier of the event that led to the action.
    package var eventID: UInt64
    /// Kind of the action (`ActionKind`).
    package var action: String
    /// `live`, `dry run` or `simulated`.
    package var mode: String
    /// Level at which the action began.
    package var level: String
    /// Initiator: `pressure`, `background` or `operator`.
    package var origin: String
    /// Evidence behind the level, comma separated; `none` if there is none.
    package var evidence: String
    /// Time at which the action began, on the manager's clock.
    package var beganSeconds: Double
    /// Duration of the action.
    package var tookSeconds: Double
    /// Bytes requested from purgeables; zero for a request without limit, or for an action that frees no memory.
    package var askedBytes: Int
    /// Bytes that purgeables report as released, without volatile memory.
    package var releasedBytes: Int
    /// Bytes of volatile memory that purgeables report as released.
    package var releasedVolatileBytes: Int
    /// Volatile memory found to be reclaimed by the kernel.
    package var takenBytes: Int
    /// Name of the cancelled request; `nil` for other actions, and from a version without the field.
    package var cancelledRequest: String?
    /// Bytes that the cancelled request held; `nil` as above.
    package var cancelledBytes: Int?
    /// The process's resident set before the action.
    package var residentBeforeBytes: Int
    /// The process's resident set after the action.
    package var residentAfterBytes: Int
    /// Usage of the group before the action.
    package var usageBeforeBytes: Int
    /// Usage of the group after the action.
    package var usageAfterBytes: Int
    /// `done`, `dry run`, or `refused: …` and `overran: …` with a reason or names.
    package var outcome: String

    /// Creates a status from `report`.
    package init(_ report: ActionReport) {
        (eventID, action, mode) = (report.eventID, ActionKind(report.action).rawValue, ActionMode(report).rawValue)
        (level, origin, evidence) = ("\(report.level)", report.origin.rawValue, "\(report.evidence)")
        (beganSeconds, tookSeconds) = (report.began.inSeconds, report.took.inSeconds)
        (askedBytes, releasedBytes, releasedVolatileBytes) = (
            report.asked.bytes, report.released.bytes, report.releasedVolatile.bytes
        )
        takenBytes = report.taken.bytes
        cancelledRequest = report.cancelledRequest
        cancelledBytes = report.cancelledRequest == nil ? nil : report.cancelledBytes.bytes
        (residentBeforeBytes, residentAfterBytes) = (report.before.resident.bytes, report.after.resident.bytes)
        (usageBeforeBytes, usageAfterBytes) = (report.before.usage.bytes, report.after.usage.bytes)
        outcome =
            switch report.outcome {
            case .done: "done"
            case .dryRun: "dry run"
            case .refused(let reason): "refused: \(reason)"
            case .overran(let names): "overran: \(names.joined(separator: ", "))"
            }
    }
}

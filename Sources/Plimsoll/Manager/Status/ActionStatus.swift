/// An action that was carried out, or would have been.
public struct ActionStatus: Sendable, Hashable, Codable {
    /// Identifier of the event that led to the action.
    public var eventID: UInt64
    /// Kind of the action (`ActionKind`).
    public var action: String
    /// `live`, `dry run` or `simulated`.
    public var mode: String
    /// Level at which the action began.
    public var level: String
    /// Initiator: `pressure`, `background` or `operator`.
    public var origin: String
    /// Evidence behind the level, comma separated; `none` if there is none.
    public var evidence: String
    /// Time at which the action began, on the manager's clock.
    public var beganSeconds: Double
    /// Duration of the action.
    public var tookSeconds: Double
    /// Bytes requested from purgeables; zero for a request without limit, or for an action that frees no memory.
    public var askedBytes: Int
    /// Bytes that purgeables report as released, without volatile memory.
    public var releasedBytes: Int
    /// Bytes of volatile memory that purgeables report as released.
    public var releasedVolatileBytes: Int
    /// Volatile memory found to be reclaimed by the kernel.
    public var takenBytes: Int
    /// The process's resident set before the action.
    public var residentBeforeBytes: Int
    /// The process's resident set after the action.
    public var residentAfterBytes: Int
    /// Usage of the group before the action.
    public var usageBeforeBytes: Int
    /// Usage of the group after the action.
    public var usageAfterBytes: Int
    /// `done`, `dry run`, or `refused: …` and `overran: …` with a reason or names.
    public var outcome: String

    /// Creates a status from `report`.
    public init(_ report: ActionReport) {
        (eventID, action, mode) = (report.eventID, ActionKind(report.action).rawValue, ActionMode(report).rawValue)
        (level, origin, evidence) = ("\(report.level)", report.origin.rawValue, "\(report.evidence)")
        (beganSeconds, tookSeconds) = (report.began.inSeconds, report.took.inSeconds)
        (askedBytes, releasedBytes, releasedVolatileBytes) = (
            report.asked.bytes, report.released.bytes, report.releasedVolatile.bytes
        )
        takenBytes = report.taken.bytes
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

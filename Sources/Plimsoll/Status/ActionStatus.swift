/// An action that was taken, or would have been.
public struct ActionStatus: Sendable, Hashable, Codable {
    /// The event it belongs to.
    public var eventID: UInt64
    /// What it was (`ActionKind`).
    public var action: String
    /// `live`, `dry run` or `simulated`.
    public var mode: String
    /// The level it was taken at.
    public var level: String
    /// Who wanted it: `pressure`, `background` or `operator`.
    public var origin: String
    /// Why, comma separated; `none` for nothing.
    public var evidence: String
    /// When it began, on the manager's clock.
    public var beganSeconds: Double
    /// How long it took.
    public var tookSeconds: Double
    /// What holders were to let go of; zero for all they could, or if it frees nothing.
    public var askedBytes: Int
    /// What they said they let go of, but for volatile memory.
    public var releasedBytes: Int
    /// The same of volatile memory.
    public var releasedVolatileBytes: Int
    /// Volatile memory that the kernel was found to have taken.
    public var takenBytes: Int
    /// The process's resident set before it.
    public var residentBeforeBytes: Int
    /// The process's resident set after it.
    public var residentAfterBytes: Int
    /// Usage of the group before it.
    public var usageBeforeBytes: Int
    /// Usage of the group after it.
    public var usageAfterBytes: Int
    /// `done`, `dry run`, or `refused: …` and `overran: …` with a reason or names.
    public var outcome: String

    /// `report` in words and numbers.
    public init(_ report: ActionReport) {
        (eventID, action, mode) = (report.eventID, ActionKind(report.action).rawValue, ActionMode(report).rawValue)
        (level, origin, evidence) = ("\(report.level)", report.origin.rawValue, "\(report.evidence)")
        (beganSeconds, tookSeconds) = (report.began.inSeconds, report.took.inSeconds)
        (askedBytes, releasedBytes, releasedVolatileBytes) = (report.asked.bytes, report.released.bytes, report.releasedVolatile.bytes)
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

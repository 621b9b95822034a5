import Synchronization

/// The reason why background work must stop.
public enum ExpirationReason: String, Sendable, Hashable, CaseIterable {
    /// Memory stayed critical.
    case pressure
    /// The process has used up its time in the background.
    case allowance
    /// The process is being shut down.
    case shutdown
    /// The machine is about to sleep.
    case hostSleep
    /// An operator requested the stop.
    case `operator`
}

/// A piece of work that should be allowed to finish, with a name, progress, and permission to run.
///
/// A task ends exactly once, by `end()` or by expiration, whichever comes first. Ending a task again has no effect.
/// A task that is dropped while active is ended and reported as leaked, with the place where the task was begun.
public final class BackgroundTask: Sendable {
    // Several objects may stand for one task: the object that `begin` returned, and the one passed to the handler.
    let record: BackgroundTaskRecord

    init(_ record: BackgroundTaskRecord) { self.record = record }

    deinit { if record.phase == .active { record.shard.end(record, isDropped: true) } }

    /// Name of the work in reports.
    public var name: String { record.name }

    /// True until the task has ended or was given up. Also true while the expiration handler runs.
    public var isActive: Bool { record.phase < .ended }

    /// The reason why the task was never active, and advice; `nil` if the task was active.
    public var refusal: String? {
        record.refusal.map { BackgroundTaskRefusal($0, of: name, by: record.shard.registry).description }
    }

    /// Time left for the task. During expiration, this is the rest of the grace; in the background, the rest of the
    /// unit's allowance. `nil` in the foreground, where no time is counted, and once the task has ended.
    public var timeRemaining: Duration? { record.shard.registry?.timeRemaining(record) }

    /// Sets the progress of the work, for reports.
    public func progress(completed: Int, total: Int) { record.setProgress(completed, total) }

    /// Ends the task when the work is done. Idempotent; callable from any thread, also from within the expiration
    /// handler.
    ///
    /// - Complexity: O(1); takes the lock of one shard, which tasks share whose threads hash to that shard.
    public func end() { if isActive { record.shard.end(record) } }
}

extension BackgroundTask: Hashable {
    /// Returns true if both objects stand for the same piece of work.
    public static func == (left: BackgroundTask, right: BackgroundTask) -> Bool { left.record === right.record }
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(record)) }
}

/// A snapshot of one background task, for reports.
public struct BackgroundTaskStatus: Sendable, Hashable {
    /// Name of the work.
    public var name: String
    /// Time since the task began.
    public var age: Duration
    /// Completed and total units of work; `nil` if the task never reported progress.
    public var progress: (completed: Int, total: Int)? {
        total > 0 ? (completed, total) : nil
    }
    /// True if the task has been asked to stop.
    public var isExpiring: Bool
    /// File and line of the call that began the task.
    public var origin: String

    package var completed: Int
    package var total: Int
}

/// As JSON, the age is in seconds, and the units of work are absent if the task never reported progress.
extension BackgroundTaskStatus: Codable {
    private enum CodingKeys: String, CodingKey { case name, ageSeconds, completed, total, isExpiring, origin }

    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        self.init(
            name: try values.decode(String.self, forKey: .name),
            age: Duration(untrustedSeconds: try values.decode(Double.self, forKey: .ageSeconds)),
            isExpiring: try values.decode(Bool.self, forKey: .isExpiring),
            origin: try values.decode(String.self, forKey: .origin),
            completed: try values.decodeIfPresent(Int.self, forKey: .completed) ?? 0,
            total: try values.decodeIfPresent(Int.self, forKey: .total) ?? 0)
    }

    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(name, forKey: .name)
        try values.encode(age.inSeconds, forKey: .ageSeconds)
        try values.encodeIfPresent(progress?.completed, forKey: .completed)
        try values.encodeIfPresent(progress?.total, forKey: .total)
        try values.encode(isExpiring, forKey: .isExpiring)
        try values.encode(origin, forKey: .origin)
    }
}

/// A refusal to begin a background task.
public struct BackgroundTaskRefusal: Error, Sendable, Hashable, CustomStringConvertible {
    /// The reason why a task may not begin.
    package enum Cause: UInt8, Sendable, Hashable, CaseIterable {
        /// The manager has been shut down, or is being shut down.
        case shutdown
        /// The unit is suspended.
        case suspended
        /// The running tasks are being asked to stop.
        case expiring
        /// The unit's time in the background is used up.
        case allowanceSpent
        /// The maximum number of tasks is running.
        case tooMany
    }

    package var cause: Cause
    /// True if no later task is accepted either: the manager has been shut down, or is being shut down.
    public var isFinal: Bool { cause == .shutdown }
    /// The name of the task, the reason, and advice.
    public var description: String

    init(_ cause: Cause, of name: String, by registry: BackgroundTaskRegistry?) {
        self.cause = cause
        let reason =
            switch cause {
            case .shutdown:
                "the manager has shut down; begin no task after `run()` has ended, and hand over or defer the rest"
            case .suspended:
                "its unit is suspended; begin the task after the return to the foreground, or defer it"
            case .expiring:
                "tasks are being expired; begin the task when they have ended, or defer it (`deferred.schedule`)"
            case .allowanceSpent:
                "the background time of its unit is spent; begin the task after the return to the foreground, or defer it (`deferred.schedule`)"
            case .tooMany:
                "\(registry?.capacity ?? 0) tasks run at once, which is the limit; end tasks that are done, or raise "
                    + "`PressurePolicy.mostBackgroundTasks`"
            }
        description = "cannot begin background task \"\(name)\" because \(reason)"
    }
}

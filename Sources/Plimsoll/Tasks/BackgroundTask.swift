import Synchronization

/// Why background work must stop.
public enum ExpirationReason: String, Sendable, Hashable, CaseIterable {
    /// Memory stayed critical.
    case pressure
    /// The time a process has in the background was spent.
    case allowance
    /// The process is being shut down.
    case shutdown
    /// The machine is about to sleep.
    case hostSleep
    /// An operator asked for it.
    case `operator`
}

/// A piece of work that should be allowed to finish: what it is called, how far it is, and whether it still may run.
///
/// It ends exactly once, by `end()` or by expiring, whichever comes first; ending it again does nothing. A task that is
/// dropped while active is ended and reported as leaked with the place where it was begun.
public final class BackgroundTask: Sendable {
    // Several of these may stand for one task: the one that `begin` returned, and the one its handler is given.
    let record: BackgroundTaskRecord

    init(_ record: BackgroundTaskRecord) { self.record = record }

    deinit { if record.phase == .active { record.shard.end(record, isDropped: true) } }

    /// What the work is called in reports.
    public var name: String { record.name }

    /// Whether it has neither ended nor been given up. True while its expiration handler runs.
    public var isActive: Bool { record.phase < .ended }

    /// Why it was never active, and what to do; `nil` if it was.
    public var refusal: String? { record.refusal.map { BackgroundTaskRefusal($0, of: name, by: record.shard.book).description } }

    /// What is left to it: of the grace while it is asked to stop, of the unit's allowance while that is in the background.
    /// `nil` in the foreground, where no time is counted, and once it has ended.
    public var timeRemaining: Duration? { record.shard.book?.timeRemaining(record) }

    /// Says how far the work is, for reports.
    public func progress(completed: Int, total: Int) { record.setProgress(completed, total) }

    /// The work is done. Idempotent; from any thread, also from within the expiration handler.
    ///
    /// - Complexity: O(1); takes a lock that only tasks begun on the same thread share.
    public func end() { if isActive { record.shard.end(record) } }
}

extension BackgroundTask: Hashable {
    /// Whether both stand for the same piece of work.
    public static func == (left: BackgroundTask, right: BackgroundTask) -> Bool { left.record === right.record }
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(record)) }
}

/// What is known of one background task. A value for reports.
public struct BackgroundTaskStatus: Sendable, Hashable {
    /// What the work is called.
    public var name: String
    /// Time since it was begun.
    public var age: Duration
    /// Units of work done and to do; `nil` if it never said.
    public var progress: (completed: Int, total: Int)? {
        total > 0 ? (completed, total) : nil
    }
    /// Whether it has been asked to stop.
    public var isExpiring: Bool
    /// File and line of the call that began it.
    public var origin: String

    var completed: Int
    var total: Int
}

/// A background task that may not begin.
public struct BackgroundTaskRefusal: Error, Sendable, Hashable, CustomStringConvertible {
    /// Why a task may not begin.
    public enum Cause: UInt8, Sendable, Hashable, CaseIterable {
        /// The manager has been shut down, or is being shut down.
        case shutdown
        /// The unit is suspended.
        case suspended
        /// Those that run are just being asked to stop.
        case expiring
        /// The unit's time in the background is spent.
        case allowanceSpent
        /// As many run as may run at once.
        case tooMany
    }

    /// Why not.
    public var cause: Cause
    /// Which task, why not, and what to do.
    public var description: String

    init(_ cause: Cause, of name: String, by book: BackgroundTaskRegistry?) {
        self.cause = cause
        let reason =
            switch cause {
            case .shutdown: "it was begun after shutdown; begin nothing once `run()` has ended, and hand over or defer what is left"
            case .suspended: "it was begun while its unit is suspended; begin it after the return to the foreground, or defer it"
            case .expiring: "it was begun while tasks are being expired; begin it when they have ended, or defer it (`deferred.schedule`)"
            case .allowanceSpent:
                "the time its unit has in the background is spent; begin it after the return to the foreground, or defer it (`deferred.schedule`)"
            case .tooMany:
                "it is one more than the \(book?.capacity ?? 0) that may run at once; end those that are done, or raise "
                    + "`PressurePolicy.mostBackgroundTasks`"
            }
        description = "background task \"\(name)\" may not run: \(reason)"
    }
}

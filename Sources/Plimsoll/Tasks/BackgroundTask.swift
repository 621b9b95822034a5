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
    let record: BackgroundTaskRecord
    private let registry: BackgroundTaskRegistry

    init(record: BackgroundTaskRecord, registry: BackgroundTaskRegistry) {
        self.record = record
        self.registry = registry
    }

    deinit { registry.dropped(record) }

    /// What the work is called in reports.
    public var name: String { record.name }

    /// Whether it has neither ended nor been given up. True while its expiration handler runs.
    public var isActive: Bool { record.phase < .ended }

    /// Why it was never active; `nil` if it was.
    public var refusal: String? { record.refusal }

    /// Time until it is given up; `nil` while nobody has asked it to stop.
    public var timeRemaining: Duration? { registry.timeRemaining(record) }

    /// Says how far the work is, for reports.
    public func progress(completed: Int, total: Int) { record.setProgress(completed, total) }

    /// The work is done. Idempotent; from any thread, also from within the expiration handler.
    public func end() { registry.end(record) }
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

/// What the registry keeps of a task.
final class BackgroundTaskRecord: Sendable {
    enum Phase: UInt8, Comparable {
        case active, expiring, ended, givenUp

        static func < (left: Phase, right: Phase) -> Bool { left.rawValue < right.rawValue }
    }

    let id: UInt64
    let name: String
    let origin: String
    let begun: Duration
    let refusal: String?
    let handler: Mutex<Handler?>
    private let phaseBits: Atomic<UInt8>
    // Relaxed: numbers for a report, each for itself.
    private let completed = Atomic<Int>(0)
    private let total = Atomic<Int>(0)

    enum Handler: Sendable {
        case blocking(@Sendable (BackgroundTask, ExpirationReason) -> Void)
        case asynchronous(@Sendable (BackgroundTask, ExpirationReason) async -> Void)
    }

    init(id: UInt64, name: String, origin: String, begun: Duration, refusal: String?, handler: Handler?) {
        self.id = id
        self.name = name
        self.origin = origin
        self.begun = begun
        self.refusal = refusal
        self.handler = Mutex(handler)
        phaseBits = Atomic(refusal == nil ? Phase.active.rawValue : Phase.ended.rawValue)
    }

    var phase: Phase { Phase(rawValue: phaseBits.load(ordering: .acquiring)) ?? .ended }

    /// Moves on if `phase` is one of `from`; exactly one caller wins each step (T4).
    ///
    /// Acquiring and releasing: what the work wrote before it ended is seen by whoever learns that it ended.
    func advance(from: Phase, to: Phase) -> Bool {
        phaseBits.compareExchange(expected: from.rawValue, desired: to.rawValue, ordering: .acquiringAndReleasing).exchanged
    }

    func setProgress(_ done: Int, _ all: Int) {
        completed.store(done, ordering: .relaxed)
        total.store(all, ordering: .relaxed)
    }

    func status(at now: Duration) -> BackgroundTaskStatus {
        BackgroundTaskStatus(
            name: name, age: now - begun, isExpiring: phase == .expiring, origin: origin,
            completed: completed.load(ordering: .relaxed), total: total.load(ordering: .relaxed))
    }
}

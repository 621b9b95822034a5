/// All that a manager knows at one instant, for people and programs outside: what an admin endpoint, a page or a scraper shows.
///
/// Plain values in base units (bytes, seconds, shares from 0 to 1) under names that stay: a line of JSON of it is read by programs of other versions, which find
/// what they know and pass over the rest. Names of levels, states and actions are text for the same reason.
public struct ManagerStatus: Sendable, Hashable, Codable {
    /// The instant, on the manager's clock; what else is in seconds of a clock is on it too.
    public var atSeconds: Double
    /// The level in force: `normal`, `warning` or `critical`.
    public var level: String
    /// Whether the policy only decides and reports.
    public var isDryRun: Bool
    /// Memory as the loop saw it last; `nil` before its first look.
    public var memory: MemoryStatus?
    /// What is registered, in the order in which it is asked.
    public var holders: [HolderStatus]
    /// Background tasks.
    public var tasks: TasksStatus
    /// What the process is doing.
    public var lifecycle: LifecycleStatus
    /// What admits work, in the order of addition.
    public var admissions: [AdmissionStatus]
    /// What has been counted since the manager was made.
    public var counts: ManagerCounts
    /// The last actions, oldest first.
    public var actions: [ActionStatus]
    /// The best footing available (`Capabilities.Footing`).
    public var footing: String
    /// Which signals are live, and why the others are not.
    public var signals: [Capabilities.Signal]
}

/// Memory at the last look of the loop.
public struct MemoryStatus: Sendable, Hashable, Codable {
    /// When that was.
    public var atSeconds: Double
    /// Which kind of limit is the tightest: `maximum`, `high`, `machine` or `none`.
    public var boundary: String
    /// The tightest limit; `nil` where none is known.
    public var limitBytes: Int?
    /// Usage at which the level `warning` begins; `nil` without a limit.
    public var warningLineBytes: Int?
    /// Usage at which `critical` begins.
    public var criticalLineBytes: Int?
    /// What is charged where the limit sits.
    public var usageBytes: Int
    /// `usageBytes` less inactive page cache: what orchestrators look at.
    public var workingSetBytes: Int
    /// What can still be allocated; `nil` without a limit.
    public var availableBytes: Int?
    /// The process's resident set.
    public var residentBytes: Int
    /// What registered caches on the heap hold by their own count.
    public var chargedBytes: Int
    /// What registered holders of volatile memory have mapped.
    public var volatileBytes: Int
    /// Volatile memory that the kernel has taken since the group was made; `nil` where it isn't counted.
    public var lazyFreedBytes: Int?
    /// Time in which at least one task stalled on memory, since the group was made; `nil` where the kernel keeps none.
    public var stallSomeSeconds: Double?
    /// Time in which all tasks did.
    public var stallFullSeconds: Double?
    /// `memory.events` of the group; `nil` where the kernel keeps none.
    public var events: PressureReading.EventCounts?
    /// What this look alone said, as `level`.
    public var observed: String
    /// The level that looks support now, without the hold: work is shed by it. `nil` from a version that does not tell.
    public var present: String?
    /// When the level in force falls a step if looks are clear of its line from now on, on the manager's clock; `nil` while the last look supports it, and from a version that does not tell.
    public var heldUntilSeconds: Double?
    /// The evidence that last supported a level that is held, comma separated; `nil` as `heldUntilSeconds`.
    public var heldFor: String?
    /// Why, comma separated; `none` for nothing.
    public var evidence: String
    /// Bytes to free.
    public var shortfallBytes: Int
    /// What caches may still take before the line is met; `nil` where no limit is known.
    public var roomBytes: Int?
    /// Growth of what cannot be reclaimed that lasts, or of which nothing says that it will end.
    public var growthBytesPerSecond: Int
    /// The largest burst of late, for which caches leave room. `nil` from a version that does not tell.
    public var burstBytes: Int?
    /// Time until the limit at that growth; `nil` when not growing.
    public var timeLeftSeconds: Double?
    /// Share of the last ten seconds in which at least one task stalled on memory.
    public var stallShare: Double
}

/// Background tasks, scenes' included.
public struct TasksStatus: Sendable, Hashable, Codable {
    /// Running.
    public var running: Int
    /// Of them, those that have been asked to stop.
    public var expiring: Int
    /// Ended without having been asked to stop, so far.
    public var ended: Int
    /// Ended after they were asked, within their time.
    public var expired: Int
    /// Not ended by the end of their time.
    public var givenUp: Int
    /// Dropped without an end.
    public var leaked: Int
    /// Refused at their beginning.
    public var refused: Int
    /// Time the process may go on in the background; `nil` in the foreground.
    public var allowanceLeftSeconds: Double?
    /// The oldest that run, at most `ManagerStatus.mostTasks`.
    public var oldest: [TaskStatus]
}

/// A background task that runs.
public struct TaskStatus: Sendable, Hashable, Codable {
    /// Its name; others may have the same.
    public var name: String
    /// Time since it began.
    public var ageSeconds: Double
    /// Units of work done; `nil` if it never said.
    public var completed: Int?
    /// Units of work in all; `nil` if it never said.
    public var total: Int?
    /// Whether it has been asked to stop.
    public var isExpiring: Bool
    /// File and line of the call that began it.
    public var origin: String
}

/// What the process is doing.
public struct LifecycleStatus: Sendable, Hashable, Codable {
    /// `notRunning`, `suspended`, `background`, `inactive` or `active`.
    public var state: String
    /// How far its launch is: `starting`, `restoring`, `warming` or `complete`.
    public var stage: String
    /// Whether it should be sent work.
    public var isReady: Bool
    /// Why not.
    public var reason: String?
    /// What still loads, with the share done.
    public var warming: [String: Double]
    /// Number of scenes.
    public var scenes: Int
}

/// Something that admits work and gives way when memory is short.
public struct AdmissionStatus: Sendable, Hashable, Codable {
    /// Its name; others may have the same.
    public var name: String
    /// What runs now.
    public var running: Int
    /// What waits now.
    public var waiting: Int
    /// How many may run now; `Int.max` for no limit.
    public var limit: Int
    /// Admitted so far.
    public var admitted: UInt64
    /// Turned away at once so far.
    public var refused: UInt64
    /// Turned away a second since memory became short; `nil` while it is plentiful, and from what does not tell.
    public var refusedPerSecond: Double?
    /// Given up waiting so far.
    public var expired: UInt64
    /// The same by priority; `nil` where work has none.
    public var requests: RequestCounts?
}

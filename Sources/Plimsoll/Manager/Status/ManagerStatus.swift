/// A snapshot of all that a manager knows, for people and programs outside: an admin endpoint, a page or a scraper.
///
/// Plain values in base units (bytes, seconds, shares from 0 to 1) under stable names. Programs of other versions
/// read the JSON form: they use the fields they know and ignore the rest. Names of levels, states and actions are
/// text for the same reason.
public struct ManagerStatus: Sendable, Hashable, Codable {
    /// Time of the snapshot, on the manager's clock. Other times in seconds use the same clock.
    public var atSeconds: Double
    /// The level in force: `normal`, `warning` or `critical`.
    public var level: String
    /// True if actions are only decided and reported.
    public var isDryRun: Bool
    /// Memory at the loop's last reading; `nil` before the first reading.
    public var memory: MemoryStatus?
    /// Registered purgeables, in the order of asking.
    public var holders: [HolderStatus]
    /// Background tasks.
    public var tasks: TasksStatus
    /// Life-cycle state of the process.
    public var lifecycle: LifecycleStatus
    /// Admission controls, in the order of addition.
    public var admissions: [AdmissionStatus]
    /// Counts since the manager was created.
    public var counts: ManagerCounts
    /// The last actions, oldest first.
    public var actions: [ActionStatus]
    /// The best footing available (`Capabilities.Footing`).
    public var footing: String
    /// The signals, each live or with the reason why not.
    public var signals: [Capabilities.Signal]
}

/// Memory at the loop's last reading.
public struct MemoryStatus: Sendable, Hashable, Codable {
    /// Time of the reading.
    public var atSeconds: Double
    /// Kind of the tightest limit: `maximum`, `high`, `machine` or `none`.
    public var boundary: String
    /// The tightest limit; `nil` if no limit is known.
    public var limitBytes: Int?
    /// Usage at which the level `warning` begins; `nil` without a limit.
    public var warningLineBytes: Int?
    /// Usage at which the level `critical` begins; `nil` without a limit.
    public var criticalLineBytes: Int?
    /// Usage charged where the limit applies.
    public var usageBytes: Int
    /// `usageBytes` less inactive page cache: the figure that orchestrators use.
    public var workingSetBytes: Int
    /// Bytes that can still be allocated; `nil` without a limit.
    public var availableBytes: Int?
    /// The process's resident set.
    public var residentBytes: Int
    /// Bytes held by registered caches on the heap, by their own accounting.
    public var chargedBytes: Int
    /// Bytes mapped by registered purgeables as volatile memory.
    public var volatileBytes: Int
    /// Volatile memory that the kernel has reclaimed since the group was created; `nil` if the kernel does not
    /// count.
    public var lazyFreedBytes: Int?
    /// Time in which at least one task stalled on memory, since the group was created; `nil` if the kernel keeps no
    /// such time.
    public var stallSomeSeconds: Double?
    /// Time in which all tasks stalled on memory, under the same conditions.
    public var stallFullSeconds: Double?
    /// `memory.events` of the group; `nil` if the kernel keeps none.
    public var events: PressureReading.EventCounts?
    /// Level of this reading alone, in the form of `level`.
    public var observed: String
    /// The level that readings support now, without the hold; load is shed by this level. `nil` from a version
    /// without the field.
    public var present: String?
    /// Time at which the level in force falls a step, if readings stay clear of its line from now on; on the
    /// manager's clock. `nil` while the last reading supports the level, and from a version without the field.
    public var heldUntilSeconds: Double?
    /// The evidence that last supported a held level, comma separated; `nil` under the conditions of
    /// `heldUntilSeconds`.
    public var heldFor: String?
    /// Evidence behind the level, comma separated; `none` if there is none.
    public var evidence: String
    /// Bytes to free.
    public var shortfallBytes: Int
    /// Bytes that caches may still take before usage reaches the line; `nil` if no limit is known.
    public var roomBytes: Int?
    /// Growth of unreclaimable memory that lasts, or that shows no sign of ending.
    public var growthBytesPerSecond: Int
    /// Largest recent burst, for which caches leave headroom. `nil` from a version without the field.
    public var burstBytes: Int?
    /// Time until the limit at that growth; `nil` when not growing.
    public var timeLeftSeconds: Double?
    /// Share of the last ten seconds in which at least one task stalled on memory.
    public var stallShare: Double
}

/// Background tasks, including those of scenes.
public struct TasksStatus: Sendable, Hashable, Codable {
    /// Running tasks.
    public var running: Int
    /// Running tasks that have been asked to stop.
    public var expiring: Int
    /// Tasks that ended without having been asked to stop, so far.
    public var ended: Int
    /// Tasks that ended in time after they were asked to stop.
    public var expired: Int
    /// Tasks that had not ended by their deadline.
    public var givenUp: Int
    /// Tasks dropped without an end.
    public var leaked: Int
    /// Tasks that were refused.
    public var refused: Int
    /// Time left for the process in the background; `nil` in the foreground.
    public var allowanceLeftSeconds: Double?
    /// The oldest running tasks, at most `ManagerStatus.mostTasks`.
    public var oldest: [BackgroundTaskStatus]
}

/// Life-cycle state of the process.
public struct LifecycleStatus: Sendable, Hashable, Codable {
    /// `notRunning`, `suspended`, `background`, `inactive` or `active`.
    public var state: String
    /// Stage of the launch: `starting`, `restoring`, `warming` or `complete`.
    public var stage: String
    /// True if the process should receive work.
    public var isReady: Bool
    /// The reason if the process is not ready.
    public var reason: String?
    /// Parts that are still loading, each with the share done.
    public var warming: [String: Double]
    /// Number of scenes.
    public var scenes: Int
    /// End of the previous run: `none`, `clean`, `crashed` (a kill included), `failedLaunch`, `killedByOperator` or
    /// `unknown`. `nil` before the launch has read the record, and from a version without the field.
    public var previousRun: String?

    /// Creates the status of a process whose life cycle is not driven: active and ready.
    public init(
        state: String = "active", stage: String = "complete", isReady: Bool = true, reason: String? = nil,
        warming: [String: Double] = [:], scenes: Int = 0, previousRun: String? = nil
    ) {
        self.state = state
        self.stage = stage
        self.isReady = isReady
        self.reason = reason
        self.warming = warming
        self.scenes = scenes
        self.previousRun = previousRun
    }
}

/// An admission control, which gives way when memory is short.
public struct AdmissionStatus: Sendable, Hashable, Codable {
    /// Name of the admission control; not necessarily unique.
    public var name: String
    /// Requests running now.
    public var running: Int
    /// Requests waiting now.
    public var waiting: Int
    /// Current concurrency limit; `Int.max` for no limit.
    public var limit: Int
    /// Requests admitted so far.
    public var admitted: UInt64
    /// Requests refused at once so far.
    public var refused: UInt64
    /// Requests refused a second since memory became short; `nil` while memory is plentiful, and if the member does
    /// not report a rate.
    public var refusedPerSecond: Double?
    /// Requests that gave up waiting so far.
    public var expired: UInt64
    /// Counts by priority; `nil` if requests have no priority.
    public var requests: RequestCounts?

    /// Creates a status.
    public init(
        name: String, running: Int, waiting: Int, limit: Int, admitted: UInt64, refused: UInt64,
        refusedPerSecond: Double? = nil, expired: UInt64, requests: RequestCounts? = nil
    ) {
        self.name = name
        (self.running, self.waiting, self.limit) = (running, waiting, limit)
        (self.admitted, self.refused, self.expired) = (admitted, refused, expired)
        self.refusedPerSecond = refusedPerSecond
        self.requests = requests
    }
}

/// Requests admitted and refused so far, by priority. Numbers only grow.
public struct RequestCounts: Sendable, Hashable, Codable {
    /// Admitted requests, by priority: `sheddable`, `normal` and `critical`.
    public var admitted: [String: UInt64] = [:]
    /// Refused requests, by priority and then reason: `concurrency`, `arrivals` and `paused`.
    public var refused: [String: [String: UInt64]] = [:]
    /// Admitted requests that would have been refused, but are served at any level.
    public var exempted: UInt64 = 0

    /// Creates counts of zero.
    public init() {}

    /// Returns the refused requests of one priority, for all reasons. Saturating, because a status may come from
    /// another process.
    public func refused(_ priority: String) -> UInt64 {
        refused[priority, default: [:]].values.reduce(0) { sum, count in
            let (sum, overflow) = sum.addingReportingOverflow(count)
            return overflow ? .max : sum
        }
    }
}

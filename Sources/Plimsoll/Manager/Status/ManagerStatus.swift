/// A snapshot of all that a manager knows, for people and programs outside: an admin endpoint, a page or a scraper.
///
/// The properties are the figures that a program asks for most. All the rest is in the JSON form (`Codable`, or
/// `json` of PlimsollService), which docs/operations describes: memory, caches, tasks, life cycle, admissions, counts
/// and actions.
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
    package var memory: MemoryStatus?
    /// Registered purgeables, in the order of asking.
    package var holders: [HolderStatus]
    package var tasks: TasksStatus
    /// Life-cycle state of the process.
    package var lifecycle: LifecycleStatus
    /// Admission controls, in the order of addition.
    package var admissions: [AdmissionStatus]
    /// Counts since the manager was created.
    package var counts: ManagerCounts
    package var actions: [ActionStatus]
    /// The last moves of memory among caches, oldest first; `nil` from a version without the field.
    package var moves: [MoveStatus]?
    /// The memory of requests; `nil` from a version without the field.
    package var requests: RequestsStatus?
    /// The best support available: `announced`, `ownGroup`, `machine`, `events`, `polling`, `custom` or `inert`, in
    /// falling order of available information.
    public var support: String
    /// The signals, each live or with the reason why not.
    public var signals: [Capabilities.Signal]

    /// Usage charged where the limit applies, at the loop's last reading; `nil` before the first reading.
    public var usageBytes: Int? { memory?.usageBytes }
    /// The tightest limit; `nil` if no limit is known.
    public var limitBytes: Int? { memory?.limitBytes }
    /// Bytes that can still be allocated; `nil` without a limit.
    public var availableBytes: Int? { memory?.availableBytes }
    /// The process's resident set.
    public var residentBytes: Int? { memory?.residentBytes }
    /// Volatile memory that the kernel has reclaimed; `nil` if the kernel does not count.
    public var lazyFreedBytes: Int? { memory?.lazyFreedBytes }
    /// Number of changes of level since the manager was created. A change on several kinds of evidence counts for
    /// each kind.
    public var levelChanges: Int { counts.transitions.reduce(0) { $0 &+ $1.count } }
    /// Number of releases since the manager was created.
    public var releases: Int { counts.releases.count }
    /// Bytes that purgeables report as released since the manager was created, volatile memory included.
    public var releasedBytes: Int { counts.releases.releasedBytes &+ counts.releases.releasedVolatileBytes }
}

/// Memory at the loop's last reading.
package struct MemoryStatus: Sendable, Hashable, Codable {
    /// Time of the reading.
    package var atSeconds: Double
    /// Kind of the tightest limit: `maximum`, `high`, `machine` or `none`.
    package var boundary: String
    /// The tightest limit; `nil` if no limit is known.
    package var limitBytes: Int?
    /// Usage at which the level `warning` begins; `nil` without a limit.
    package var warningLineBytes: Int?
    /// Usage at which the level `critical` begins; `nil` without a limit.
    package var criticalLineBytes: Int?
    /// Usage charged where the limit applies.
    package var usageBytes: Int
    /// `usageBytes` less inactive page cache: the figure that orchestrators use.
    package var workingSetBytes: Int
    /// Bytes that can still be allocated; `nil` without a limit.
    package var availableBytes: Int?
    /// The process's resident set.
    package var residentBytes: Int
    /// Bytes held by registered caches on the heap, by their own accounting.
    package var chargedBytes: Int
    /// Bytes mapped by registered purgeables as volatile memory.
    package var volatileBytes: Int
    /// Volatile memory that the kernel has reclaimed since the group was created; `nil` if the kernel does not
    /// count.
    package var lazyFreedBytes: Int?
    /// Time in which at least one task stalled on memory, since the group was created; `nil` if the kernel keeps no
    /// such time.
    package var stallSomeSeconds: Double?
    /// Time in which all tasks stalled on memory, under the same conditions.
    package var stallFullSeconds: Double?
    /// `memory.events` of the group; `nil` if the kernel keeps none.
    package var events: PressureReading.EventCounts?
    /// Level of this reading alone, in the form of `level`.
    package var observed: String
    /// The level that readings support now, without the hold; load is shed by this level. `nil` from a version
    /// without the field.
    package var present: String?
    /// Time at which the level in force falls a step, if readings stay clear of its line from now on; on the
    /// manager's clock. `nil` while the last reading supports the level, and from a version without the field.
    package var heldUntilSeconds: Double?
    /// The evidence that last supported a held level, comma separated; `nil` under the conditions of
    /// `heldUntilSeconds`.
    package var heldFor: String?
    /// Evidence behind the level, comma separated; `none` if there is none.
    package var evidence: String
    /// Bytes to free.
    package var shortfallBytes: Int
    /// Bytes that caches may still take before usage reaches the line; `nil` if no limit is known.
    package var roomBytes: Int?
    /// Growth of unreclaimable memory that lasts, or that shows no sign of ending.
    package var growthBytesPerSecond: Int
    /// Largest recent burst, for which caches leave headroom. `nil` from a version without the field.
    package var burstBytes: Int?
    /// Time until the limit at that growth; `nil` when not growing.
    package var timeLeftSeconds: Double?
    /// Share of the last ten seconds in which at least one task stalled on memory.
    package var stallShare: Double
}

/// The memory of requests that have a budget.
package struct RequestsStatus: Sendable, Hashable, Codable {
    /// A request that runs now.
    package struct Request: Sendable, Hashable, Codable {
        package var name: String
        /// Bytes held now.
        package var heldBytes: Int
        /// The most bytes held so far.
        package var peakBytes: Int
        /// Bytes above which the request is cancelled; `nil` for no limit.
        package var limitBytes: Int?
        /// True if the request was told to end.
        package var isCancelled: Bool
    }

    /// True if the allocator counts for requests.
    package var isMetered: Bool
    /// Number of requests with a budget that run now.
    package var running: Int
    /// Bytes held by these requests.
    package var heldBytes: Int
    /// Requests cancelled above their limits so far.
    package var cancelledOverLimit: Int
    /// Requests cancelled because memory was short.
    package var cancelledForPressure: Int
    /// The requests that hold most, at most `ManagerStatus.mostRequests`.
    package var largest: [Request]
}

/// Background tasks, including those of scenes.
package struct TasksStatus: Sendable, Hashable, Codable {
    package var running: Int
    /// Running tasks that have been asked to stop.
    package var expiring: Int
    /// Tasks that ended without having been asked to stop, so far.
    package var ended: Int
    /// Tasks that ended in time after they were asked to stop.
    package var expired: Int
    /// Tasks that had not ended by their deadline.
    package var givenUp: Int
    /// Tasks dropped without an end.
    package var leaked: Int
    /// Tasks that were refused.
    package var refused: Int
    /// Time left for the process in the background; `nil` in the foreground.
    package var allowanceLeftSeconds: Double?
    /// The oldest running tasks, at most `ManagerStatus.mostTasks`.
    package var oldest: [BackgroundTaskStatus]
}

/// Life-cycle state of the process.
package struct LifecycleStatus: Sendable, Hashable, Codable {
    /// `notRunning`, `suspended`, `background`, `inactive` or `active`.
    package var state: String
    /// Stage of the launch: `starting`, `restoring`, `warming` or `complete`.
    package var stage: String
    /// True if the process should receive work.
    package var isReady: Bool
    /// The reason if the process is not ready.
    package var reason: String?
    /// Parts that are still loading, each with the share done.
    package var warming: [String: Double]
    package var scenes: Int
    /// End of the previous run: `none`, `clean`, `crashed` (a kill included), `failedLaunch`, `killedByOperator` or
    /// `unknown`. `nil` before the launch has read the record, and from a version without the field.
    package var previousRun: String?

    /// Creates the status of a process whose life cycle is not driven: active and ready.
    package init(
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
package struct AdmissionStatus: Sendable, Hashable, Codable {
    /// Name of the admission control; not necessarily unique.
    package var name: String
    /// Requests running now.
    package var running: Int
    /// Requests waiting now.
    package var waiting: Int
    /// Current concurrency limit; `Int.max` for no limit.
    package var limit: Int
    /// Requests admitted so far.
    package var admitted: UInt64
    /// Requests refused so far: at once, or also after a wait if requests have a priority.
    package var refused: UInt64
    /// Requests refused a second since memory became short; `nil` while memory is plentiful, and if the member does
    /// not report a rate.
    package var refusedPerSecond: Double?
    /// Requests that gave up waiting so far.
    package var expired: UInt64
    /// Counts by priority; `nil` if requests have no priority.
    package var requests: RequestCounts?

    /// Creates a status.
    package init(
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

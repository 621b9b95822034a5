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
    /// Why, comma separated; `none` for nothing.
    public var evidence: String
    /// Bytes to free.
    public var shortfallBytes: Int
    /// What caches may still take before the line is met; `nil` where no limit is known.
    public var roomBytes: Int?
    /// Growth of what cannot be reclaimed.
    public var growthBytesPerSecond: Int
    /// Time until the limit at that growth; `nil` when not growing.
    public var timeLeftSeconds: Double?
    /// Share of the last ten seconds in which at least one task stalled on memory.
    public var stallShare: Double
}

/// Something registered that can let go of memory.
public struct HolderStatus: Sendable, Hashable, Codable {
    public var name: String
    /// The group it belongs to, names joined by slashes; empty for none.
    public var group: String
    /// The tags it was registered with.
    public var tags: [String]
    /// `trivial`, `cheap`, `expensive` or `precious`.
    public var rebuildCost: String
    /// Whether it is asked under pressure.
    public var releasesUnderPressure: Bool
    /// Bytes it holds.
    public var heldBytes: Int
    /// Of them in pages that the kernel may take; `nil` if it has none of the kind.
    public var volatileBytes: Int?
    /// Its limit; `nil` for none, or one that isn't known.
    public var limitBytes: Int?
    /// Nanoseconds to make a byte of it again, as observed; `nil` if that isn't known.
    public var rebuildNanosecondsPerByte: Double?
    /// What it has counted; `nil` if it doesn't count.
    public var cache: CacheStatus?
    /// For how long its own code has not returned from a call, if that is a second or more; the numbers are those it told last.
    public var unansweredSeconds: Double?
}

/// What a cache has counted since it was made (`CacheStatistics`).
public struct CacheStatus: Sendable, Hashable, Codable {
    public var entries: Int
    public var hits: Int
    public var misses: Int
    public var evictions: Int
    public var expired: Int
    public var purged: Int
    public var droppedByKernel: Int
    public var replaced: Int
    public var rejected: Int
    public var loads: Int
    public var loadFailures: Int
    public var loadSeconds: Double

    init(_ statistics: CacheStatistics) {
        (entries, hits, misses) = (statistics.count, statistics.hits, statistics.misses)
        (evictions, expired, purged) = (statistics.evictions, statistics.expired, statistics.purged)
        (droppedByKernel, replaced, rejected) = (statistics.droppedByKernel, statistics.replaced, statistics.rejected)
        (loads, loadFailures, loadSeconds) = (statistics.loads, statistics.loadFailures, statistics.loadTime.inSeconds)
    }

    /// Share of look-ups that found a value, in `0...1`; zero before the first.
    public var hitRatio: Double { hits + misses == 0 ? 0 : Double(hits) / Double(hits + misses) }
}

/// Background tasks, scenes' included.
public struct TasksStatus: Sendable, Hashable, Codable {
    /// Running, of which `expiring` have been asked to stop.
    public var running: Int
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
    public var name: String
    public var ageSeconds: Double
    /// Units of work done and to do; `nil` if it never said.
    public var completed: Int?
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
    public var name: String
    /// What runs now, what waits, and how many may run now.
    public var running: Int
    public var waiting: Int
    public var limit: Int
    /// So far: admitted, turned away at once, and given up waiting.
    public var admitted: UInt64
    public var refused: UInt64
    public var expired: UInt64
    /// The same by priority; `nil` where work has none.
    public var requests: RequestCounts?
}

/// An action that was taken, or would have been.
public struct ActionStatus: Sendable, Hashable, Codable {
    /// The event it belongs to.
    public var eventID: UInt64
    /// What it was (`ActionKind`).
    public var action: String
    /// `live`, `dry run` or `simulated`.
    public var mode: String
    public var level: String
    /// Who wanted it: `pressure`, `background` or `operator`.
    public var origin: String
    public var evidence: String
    public var beganSeconds: Double
    public var tookSeconds: Double
    public var askedBytes: Int
    public var releasedBytes: Int
    public var releasedVolatileBytes: Int
    public var takenBytes: Int
    public var residentBeforeBytes: Int
    public var residentAfterBytes: Int
    public var usageBeforeBytes: Int
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

import Plimsoll

/// The load on a subject of the stress harness. All shares are of the limit.
///
/// In each scenario the requested memory and the cache together exceed the limit; without the cache they do not. The
/// subject lives only if the cache gives way in time. In the scenarios of bursts the cache fills again between them.
enum Scenario: String, CaseIterable {
    case slowRamp = "ramp-20"
    case fastRamp = "ramp-200"
    case fullSpeedRamp = "ramp-max"
    case fullSpeedTwoThreads = "ramp-max-2t"
    case readers = "ramp-read"
    case pageCache = "page-cache"
    case hugePages = "ramp-huge"
    case traffic = "traffic"
    case bursts = "burst"
    case burstsOfTwo = "burst-2"
    case limitHalved = "limit-halved"
    case limitCut = "limit-cut"

    struct Plan: Equatable {
        /// Cache filled before the ramp.
        var cache = 0.5
        /// Page cache of a file filled before the ramp.
        var pageCache = 0.0
        /// Memory allocated by the ramp.
        var ramp = 0.8
        /// Bytes a second over all threads; `nil` for as fast as pages can be touched.
        var rate: Double?
        var threads = 1
        /// True if the ramp may get huge pages, 2 MiB in one fault.
        var hugePages = false
        /// Number of threads that look up every key of the cache, again and again.
        var readers = 0
        /// Bytes a second that requests insert into the cache meanwhile, in limits.
        var traffic = 0.0
        /// Bursts that come and go instead of the ramp.
        var bursts: Bursts?
        /// Live memory before the limit is lowered to half.
        var liveBeforeHalving: Double?
    }

    func plan(limit: ByteCount) -> Plan {
        switch self {
        case .slowRamp: Plan(rate: 20e6)
        case .fastRamp: Plan(rate: 200e6)
        case .fullSpeedRamp: Plan()
        case .fullSpeedTwoThreads: Plan(threads: 2)
        case .hugePages: Plan(hugePages: true)
        case .readers: Plan(readers: 2)
        case .pageCache: Plan(cache: 0.3, pageCache: 0.4, ramp: 0.8)
        // The live memory takes four seconds to reach half the limit; meanwhile four limits' worth of values are
        // requested.
        case .traffic: Plan(cache: 0, ramp: 0.5, rate: Double(limit.bytes) * 0.5 / 4, traffic: 1)
        // Requests fill a cache of the whole limit within eight seconds, and go on: each burst forces out the values
        // filled since.
        case .bursts: Plan(ramp: 0, traffic: 0.12, bursts: Bursts())
        case .burstsOfTwo: Plan(ramp: 0, traffic: 0.12, bursts: Bursts(threads: 2))
        // Usage is below half the limit when the limit is lowered.
        case .limitHalved: Plan(cache: 0.25, ramp: 0.25, rate: 20e6, liveBeforeHalving: 0.10)
        // Usage is above half the limit. Version 2 reclaims inside the write, and kills if that is not enough. A
        // cache on the heap cannot react in time.
        case .limitCut: Plan(cache: 0.5, ramp: 0.25, rate: 20e6, liveBeforeHalving: 0.10)
        }
    }

    /// Longest plausible time of a run: several times the expected time.
    func patience(limit: ByteCount) -> Duration {
        let plan = plan(limit: limit)
        return .seconds(60 + 4 * Double(limit.bytes) * plan.ramp / (plan.rate ?? 20e6)) + (plan.bursts?.length ?? .zero)
            * 2
    }
}

/// Protection of the subject from the kernel's kill.
enum Protection: String, CaseIterable {
    /// The cache is not registered and no manager runs.
    case none
    /// The cache is registered and the manager runs.
    case reactive
    /// The cache is in memory that the kernel may reclaim. No manager runs: no code of the library has to react.
    case volatile
}

/// Result of a subject that survived, printed as its last line.
struct SubjectResult: Codable, Equatable {
    /// Time from demand crossing 80 % of the limit until a level was seen; negative if the level came first. Demand
    /// is the group's memory at the start plus all memory requested since.
    var noticeMicroseconds: Int?
    /// Time from the same crossing until the first release began.
    var releaseMicroseconds: Int?
    /// Length of each pass.
    var purgeMicroseconds: [Int] = []
    /// Sum over passes of the measured fall of resident memory or of the group, the larger of both. With volatile
    /// memory: bytes that the kernel reclaimed.
    var returnedBytes = 0
    /// Entries in the cache at the end, each checked byte for byte, and entries lost before.
    var keptEntries = 0
    var lostEntries = 0
    /// Number of wrong bytes in the kept entries; any at all is a failure.
    var wrongBytes = 0
}

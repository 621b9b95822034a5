import Plimsoll

/// What a subject of the stress harness goes through. All shares are of the limit.
///
/// In each the memory that is asked for and the cache together exceed the limit, and without the cache they do not:
/// the subject lives only if the cache gives way in time. In the scenarios of bursts the cache fills again between them.
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
        /// Memory asked for by the ramp.
        var ramp = 0.8
        /// Bytes a second over all threads; `nil` for as fast as pages can be touched.
        var rate: Double?
        var threads = 1
        /// Whether the ramp may be served with huge pages, 2 MiB in one fault.
        var hugePages = false
        /// Threads that ask the cache for everything in it, again and again.
        var readers = 0
        /// Bytes a second that requests ask the cache to take meanwhile, in limits.
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
        // The live memory takes four seconds to half the limit, while four limits' worth of values are asked for.
        case .traffic: Plan(cache: 0, ramp: 0.5, rate: Double(limit.bytes) * 0.5 / 4, traffic: 1)
        // Requests ask for a cache of the whole limit within eight seconds, and go on: each burst takes back what was filled since.
        case .bursts: Plan(ramp: 0, traffic: 0.12, bursts: Bursts())
        case .burstsOfTwo: Plan(ramp: 0, traffic: 0.12, bursts: Bursts(threads: 2))
        // Under the half when it is lowered.
        case .limitHalved: Plan(cache: 0.25, ramp: 0.25, rate: 20e6, liveBeforeHalving: 0.10)
        // Over it: inside the write version 2 reclaims, and kills if that is not enough. On the heap nothing can be done in time.
        case .limitCut: Plan(cache: 0.5, ramp: 0.25, rate: 20e6, liveBeforeHalving: 0.10)
        }
    }

    /// How long a run may take before something is wrong: several times what it should.
    func patience(limit: ByteCount) -> Duration {
        let plan = plan(limit: limit)
        return .seconds(60 + 4 * Double(limit.bytes) * plan.ramp / (plan.rate ?? 20e6)) + (plan.bursts?.length ?? .zero) * 2
    }
}

/// What stands between the subject and the kernel.
enum Protection: String, CaseIterable {
    /// The cache is not registered and no manager runs.
    case none
    /// The cache is registered and the manager runs.
    case reactive
    /// The cache is in memory that the kernel may take. No manager runs: nothing of ours has to react.
    case volatile
}

/// What a subject that lived tells on its last line.
struct SubjectResult: Codable, Equatable {
    /// From demand (what the group held at the start and what was asked for since) crossing 80 % of the limit until a level was seen;
    /// negative if before.
    var noticeMicroseconds: Int?
    /// Until the first release began.
    var releaseMicroseconds: Int?
    /// Length of each pass.
    var purgeMicroseconds: [Int] = []
    /// Sum of the falls measured, of resident memory or of the group, the larger of each pass; with volatile memory what the kernel took.
    var returnedBytes = 0
    /// Entries that were in the cache at the end, each looked at byte for byte, and entries that had been in it before.
    var keptEntries = 0
    var lostEntries = 0
    /// Bytes of what was kept that were not as they had been put in; any at all is a failure.
    var wrongBytes = 0
}

import Plimsoll

/// What a subject of the stress harness goes through. All shares are of the limit.
///
/// In each the memory that is asked for and the cache together exceed the limit, and without the cache they do not:
/// the subject lives only if the cache gives way in time.
enum Scenario: String, CaseIterable {
    case slowRamp = "ramp-20"
    case fastRamp = "ramp-200"
    case fullSpeedRamp = "ramp-max"
    case fullSpeedTwoThreads = "ramp-max-2t"
    case pageCache = "page-cache"
    case traffic = "traffic"
    case limitHalved = "limit-halved"

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
        /// Bytes a second that requests ask the cache to take meanwhile, in limits.
        var traffic = 0.0
        /// Live memory before the limit is lowered to half.
        var liveBeforeHalving: Double?
    }

    func plan(limit: ByteCount) -> Plan {
        switch self {
        case .slowRamp: Plan(rate: 20e6)
        case .fastRamp: Plan(rate: 200e6)
        case .fullSpeedRamp: Plan()
        case .fullSpeedTwoThreads: Plan(threads: 2)
        case .pageCache: Plan(cache: 0.3, pageCache: 0.4, ramp: 0.8)
        // The live memory takes four seconds to half the limit, while four limits' worth of values are asked for.
        case .traffic: Plan(cache: 0, ramp: 0.5, rate: Double(limit.bytes) * 0.5 / 4, traffic: 1)
        // Under the half when it is lowered: a limit set below what is held kills at once on version 2, whoever
        // is in there, and is refused by version 1.
        case .limitHalved: Plan(cache: 0.25, ramp: 0.25, rate: 20e6, liveBeforeHalving: 0.10)
        }
    }

    /// How long a run may take before something is wrong: several times what it should.
    func patience(limit: ByteCount) -> Duration {
        let plan = plan(limit: limit)
        return .seconds(60 + 4 * Double(limit.bytes) * plan.ramp / (plan.rate ?? 20e6))
    }
}

/// What stands between the subject and the kernel.
enum Protection: String, CaseIterable {
    /// The cache is not registered and no manager runs.
    case none
    /// The cache is registered and the manager runs.
    case reactive
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
    /// Sum of the falls measured, of resident memory or of the group, the larger of each pass.
    var returnedBytes = 0
}

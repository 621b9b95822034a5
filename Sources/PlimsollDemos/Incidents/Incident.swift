package import Plimsoll
import PlimsollLifecycle

/// A situation in which controllers of memory pressure have failed in the field, with the right outcome.
package enum Incident: String, CaseIterable {
    /// Page cache fills the group: usage stands at the limit for good, and memory is not short.
    case pageCache = "page-cache"
    /// Dentries of files that do not exist fill the group, and reclaim frees them as they come.
    case dentries
    /// Dentries and inodes in use fill the group. They look the same in `memory.stat`, and no reclaim frees them.
    case heldDentries = "held-dentries"
    /// Memory at the critical level is held by sessions that only further requests end. A level that refuses those
    /// requests never ends.
    case sealed
    /// The group's own limit is high. The limit of the parent, which a neighbour shares, is low.
    case lowerFloor = "lower-floor"
    /// Clients read slowly, and socket buffers grow.
    case sockets

    package var summary: String {
        switch self {
        case .pageCache: "page cache stands at the limit for ten minutes"
        case .dentries: "dentries by the million stand at the limit for ten minutes"
        case .heldDentries: "dentries and inodes in use grow towards the limit"
        case .sealed: "memory is held by sessions that only admitted requests end"
        case .lowerFloor: "the parent's limit, shared with a neighbour, is below the group's own"
        case .sockets: "socket buffers grow, which the kernel cannot reclaim"
        }
    }

    /// Returns the right outcome in words, and true if `outcome` is right.
    package func judge(_ outcome: IncidentOutcome) -> (expected: String, isMet: Bool) {
        let levels = outcome.levels, lives = outcome.survives && !levels.isEmpty
        switch self {
        case .pageCache, .dentries: return ("the level stays normal", lives && levels.allSatisfy { $0 == .normal })
        case .heldDentries:
            return (
                "a warning comes before the kernel kills, and the service lives",
                lives && levels.contains { $0 >= .warning }
            )
        case .sealed:
            return (
                "the level becomes critical and falls again by itself",
                lives && !outcome.ends && levels.contains(.critical) && levels.last == .normal
            )
        case .lowerFloor:
            let endsNormal = levels.suffix(levels.count / 4).allSatisfy { $0 == .normal }
            return (
                "the cache settles below the parent's limit, at the level normal",
                lives && endsNormal && outcome.cacheShare > 1.0 / 24
            )
        case .sockets:
            return (
                "a warning narrows admission, and the service lives",
                lives && levels.contains { $0 >= .warning } && levels.last == .normal
            )
        }
    }

    package func run() -> IncidentRun {
        var run = IncidentRun(self)
        while run.step() {}
        return run
    }
}

/// The outcome of an incident for its service.
package struct IncidentOutcome {
    /// The level at each reading, in order.
    package var levels: [PressureLevel]
    /// True unless the kernel has killed the service.
    package var survives: Bool
    /// True if the policy would have ended the service.
    package var ends: Bool
    /// Share of the effective limit that the service's caches hold at the end.
    package var cacheShare: Double

    /// Creates an outcome; without arguments, of a service that has survived and took no readings.
    package init(levels: [PressureLevel] = [], survives: Bool = true, ends: Bool = false, cacheShare: Double = 0) {
        (self.levels, self.survives, self.ends, self.cacheShare) = (levels, survives, ends, cacheShare)
    }
}

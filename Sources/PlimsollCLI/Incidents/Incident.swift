import Plimsoll

/// A situation in which controllers of memory pressure have failed in the field, with the outcome that is right.
enum Incident: String, CaseIterable {
    /// Page cache fills the group: usage stands at the limit for good, and nothing is short.
    case pageCache = "page-cache"
    /// Dentries of files that do not exist fill the group, and reclaim frees them as they come.
    case dentries
    /// Dentries and inodes in use fill the group. They look the same in `memory.stat`, and no reclaim frees them.
    case heldDentries = "held-dentries"
    /// Memory at the critical level is held by sessions that only further requests end. A level that refuses those requests never ends.
    case sealed
    /// The group's own limit is high, and that of its parent, which a neighbour shares, is low.
    case lowerFloor = "lower-floor"
    /// Clients read slowly, and socket buffers grow.
    case sockets

    var summary: String {
        switch self {
        case .pageCache: "page cache stands at the limit for ten minutes"
        case .dentries: "dentries by the million stand at the limit for ten minutes"
        case .heldDentries: "dentries and inodes in use grow towards the limit"
        case .sealed: "memory is held by sessions that only admitted requests end"
        case .lowerFloor: "the parent's limit, shared with a neighbour, is below the group's own"
        case .sockets: "socket buffers grow, which no reclaim frees"
        }
    }

    /// The right outcome in words, and whether `run` had it.
    func judge(_ run: IncidentRun) -> (expected: String, isMet: Bool) {
        let levels = run.steps.map(\.assessment.level), isCalm = levels.allSatisfy { $0 == .normal }
        let survives = !run.group.isKilled, ends = run.steps.contains { $0.actions.contains(where: \.endsTheProcess) }
        switch self {
        case .pageCache, .dentries: return ("the level stays normal", survives && isCalm)
        case .heldDentries: return ("a warning comes before the kernel kills, and the service lives", survives && levels.contains { $0 >= .warning })
        case .sealed:
            return ("the level becomes critical and falls again by itself", survives && !ends && levels.contains(.critical) && levels.last == .normal)
        case .lowerFloor:
            let settled = levels.suffix(levels.count / 4).allSatisfy { $0 == .normal }
            return ("the cache settles below the parent's limit, at the level normal", survives && settled && run.group.cache > 32 << 20)
        case .sockets:
            return ("a warning narrows admission, and the service lives", survives && levels.contains { $0 >= .warning } && levels.last == .normal)
        }
    }

    func run() -> IncidentRun {
        var run = IncidentRun(self)
        while run.step() {}
        return run
    }
}

extension PressureAction {
    fileprivate var endsTheProcess: Bool { if case .terminate = self { true } else { false } }
}

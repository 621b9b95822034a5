import ArgumentParser
import Plimsoll
import PlimsollSupervisor

/// A stretch of a supervisor's work in which a harness kills the supervisor, at each system call of one thread.
enum KillPhase: String, CaseIterable, ExpressibleByArgument {
    /// From nothing until all units run: groups are probed and made, the guard is started, units are started and
    /// recorded.
    case start
    /// From the state left by a former supervisor until all units run again and the unit that is no longer wanted has
    /// ended.
    case takeOver = "take-over"
    /// A unit's process has been killed and is restarted, with a new record.
    case restart
    /// The guard has been killed and is replaced.
    case `guard`
    /// A unit goes to the background, is frozen, loses the page cache and is thawed.
    case freeze
    /// The same; the killed thread is the one that reclaims memory.
    case reclaim
    /// A unit in the background is throttled, and then gets processor time back.
    case throttle
    /// A unit is asked to end, and the unit's current usage becomes the limit.
    case contain
    /// A unit is removed from the units file.
    case reload
    /// The supervisor ends all units.
    case stop
    /// The supervisor ends, and units run on.
    case leave

    /// True if the phase begins with the process's own start.
    var isFromStart: Bool { self == .start || self == .takeOver }
    /// True if the phase ends with `run()`.
    var isUntilEnd: Bool { self == .stop || self == .leave }
    /// Name of the thread whose system calls are counted; `nil` for the first thread.
    var thread: String? { self == .reclaim ? "plimsoll-action" : nil }

    /// The unit that most phases act on.
    static let subject = "batch"
    /// A unit of the former supervisor that the successor does not run.
    static let leftover = "old"

    /// Returns the units.
    ///
    /// - Parameter part: position in the sequence of supervisors.
    func units(_ part: FleetPart, directory: String) -> [ServiceUnit] {
        let names =
            part == .former
            ? ["web", Self.subject, Self.leftover] : part == .next && self == .reload ? ["web"] : ["web", Self.subject]
        return names.map { name in
            // `exec` keeps the process: the number that the script writes is the number of the running process.
            let ignoring = self == .contain && name == Self.subject ? "trap '' TERM; " : ""
            let script =
                "\(ignoring)head -c 2000000 /dev/zero > \(directory)/\(name).data; echo $$ >> \(directory)/\(name).starts; exec sleep 300"
            var unit = ServiceUnit(name: name, origin: .command(["/bin/sh", "-c", script]))
            unit.restart = .always
            unit.memoryLimit = Self.limit
            if name == "web" {
                unit.importance = 800
            } else {
                (unit.role, unit.importance) = (.background, 100)
            }
            if name == Self.subject, self == .throttle || self == .contain { unit.suspension = .never }
            if name == Self.subject, self == .throttle { unit.allowance = .milliseconds(1) }
            return unit
        }
    }

    static let limit = ByteCount.mebibytes(512)

    func policy(_ part: FleetPart) -> SupervisorPolicy {
        var policy = SupervisorPolicy()
        // Disable actions that this harness does not check.
        policy.foregroundPatience = .seconds(3600)
        (policy.roomHold, policy.leastReclaim) = (.zero, .zero)
        policy.leaveTime = self == .throttle ? .seconds(3600) : .zero
        policy.grace = part == .next ? .milliseconds(500) : .seconds(10)
        return policy
    }
}

/// Position in the sequence of supervisors.
enum FleetPart: String, ExpressibleByArgument {
    /// Leaves a state to take over.
    case former
    /// The supervisor that is killed.
    case subject
    /// Finds the state that was left, and repairs it.
    case next
}

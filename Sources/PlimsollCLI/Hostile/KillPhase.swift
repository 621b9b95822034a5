import ArgumentParser
import Plimsoll
import PlimsollSupervisor

/// A stretch of a supervisor's work in which a harness kills the supervisor, at each system call of one of its threads.
enum KillPhase: String, CaseIterable, ExpressibleByArgument {
    /// From nothing until all units run: groups are probed and made, the guard is started, units are started and noted.
    case start
    /// From what a former supervisor left until all units run again and the unit that is no longer wanted has ended.
    case takeOver = "take-over"
    /// A unit's process has been killed and is started again, with a new note.
    case restart
    /// The guard has been killed and is replaced.
    case `guard`
    /// A unit goes to the background, is frozen, loses its page cache and is thawed.
    case freeze
    /// The same; killed is the thread that pushes memory out.
    case pushOut = "push-out"
    /// A unit in the background is throttled, and has its processor back.
    case throttle
    /// A unit is asked to end and gets a limit of what it has.
    case contain
    /// A unit is taken out of the units file.
    case reload
    /// The supervisor ends all units.
    case stop
    /// The supervisor ends, and units run on.
    case leave

    /// Whether the phase begins with the process's own start.
    var isFromStart: Bool { self == .start || self == .takeOver }
    /// Whether the phase ends with `run()`.
    var isUntilEnd: Bool { self == .stop || self == .leave }
    /// The thread whose system calls are counted; `nil` for the first.
    var thread: String? { self == .pushOut ? "plimsoll-hands" : nil }

    /// The unit that most phases are about.
    static let subject = "batch"
    /// What a former supervisor ran and its successor does not.
    static let leftover = "old"

    /// - Parameter part: which of the supervisors that follow each other.
    func units(_ part: FleetPart, directory: String) -> [ServiceUnit] {
        let names = part == .former ? ["web", Self.subject, Self.leftover] : part == .next && self == .reload ? ["web"] : ["web", Self.subject]
        return names.map { name in
            // What it is remains the same process: the number that it writes down is the one that lives.
            let ignoring = self == .contain && name == Self.subject ? "trap '' TERM; " : ""
            let script = "\(ignoring)head -c 2000000 /dev/zero > \(directory)/\(name).data; echo $$ >> \(directory)/\(name).starts; exec sleep 300"
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
        // What is not looked at is not to happen meanwhile.
        policy.foregroundPatience = .seconds(3600)
        (policy.roomHold, policy.leastPushOut) = (.zero, .zero)
        policy.leaveTime = self == .throttle ? .seconds(3600) : .zero
        policy.grace = part == .next ? .milliseconds(500) : .seconds(10)
        return policy
    }
}

/// Which of the supervisors that follow each other.
enum FleetPart: String, ExpressibleByArgument {
    /// Leaves what is taken over.
    case former
    /// Is killed.
    case subject
    /// Finds what was left, and puts it right.
    case next
}

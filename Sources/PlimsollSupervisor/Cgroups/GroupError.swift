import Glibc

/// A failed operation on a cgroup: operation, object, reason and remedy. The text is built only when read, since
/// errors may occur while memory is short.
package struct GroupError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The requested operation.
    package enum Act: String, Sendable {
        case find, make, adopt, inspect, freeze, thaw, stop, `continue`, kill, limit, weigh, throttle, remove
        case enter = "put a process into"
        case pushOut = "push out memory of"
        case protect = "guard"
    }

    /// The reason for the failure.
    package enum Reason: Hashable, Sendable {
        /// The kernel's errno.
        case kernel(Int32)
        /// Another directory has the path: the group was removed, and perhaps another process made a new one (K38).
        case replaced
        /// The group is the root, or the supervisor is in it or below. A supervisor that freezes or kills that group
        /// stops itself (T32).
        case supervisors
        /// The directory is not a cgroup.
        case noGroup
        /// A requirement is missing; the text is one sentence.
        case missing(String)
        /// Number of processes that are still in the group.
        case occupied(Int)
        /// The unit runs, and must be frozen for this operation.
        case runs
        /// The first process is, or started, the other process, which is not of this unit: the supervisor, its guard,
        /// or a process of another unit.
        case ancestor(Int32, of: Int32)
        /// Number of processes in a group that no note attributes to a supervisor of this directory.
        case foreign(Int)
        /// The name has characters other than letters, digits, `-`, `_` and `.`, or is too long.
        case name
    }

    package var act: Act
    /// The directory or file.
    package var object: String
    package var reason: Reason

    package init(_ act: Act, _ object: String, _ reason: Reason) {
        (self.act, self.object, self.reason) = (act, object, reason)
    }

    package var description: String { "cannot \(act.rawValue) \(object): \(reason)" + (remedy.map { "; \($0)" } ?? "") }

    private var remedy: String? {
        switch reason {
        case .kernel(EACCES), .kernel(EPERM), .kernel(EROFS):
            "run the supervisor as root or in a delegated group (Delegate=yes in its unit)"
        case .kernel(EBUSY):
            "a group with controllers for others holds no processes itself: move them to a group below it (K43)"
        case .kernel(ENODEV), .kernel(ENOENT), .replaced: "give the unit a new group"
        case .supervisors: "name a group that is the unit's alone"
        case .noGroup: "name a directory below where the hierarchies are mounted"
        case .occupied: "end its processes first"
        case .runs: "suspend it first"
        case .ancestor: "name the unit's own first process"
        case .foreign: "take another prefix, or the directory of the supervisor that made it, or end its processes"
        case .name: "use 1 to 64 letters, digits, -, _ and ., the first a letter or digit"
        case .kernel, .missing: nil
        }
    }
}

extension GroupError.Reason: CustomStringConvertible {
    package var description: String {
        switch self {
        case .kernel(let number): String(cString: strerror(number))
        case .replaced: "the group that was there is gone, and another may be in its place"
        case .supervisors: "the supervisor is in it"
        case .noGroup: "it is no control group"
        case .missing(let what): what
        case .occupied(let count): "it still holds \(count == 1 ? "a process" : "\(count) processes")"
        case .runs: "its processes run"
        case .ancestor(let pid, let other):
            other == getpid()
                ? "the supervisor is process \(pid), or was started by it"
                : "process \(other), which is none of the unit's, is process \(pid) or was started by it"
        case .foreign(let count): "it is another's group, and holds \(count == 1 ? "a process" : "\(count) processes")"
        case .name: "that is no name for a unit"
        }
    }
}

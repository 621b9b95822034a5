import Glibc

/// A failed operation on a cgroup: operation, object, reason and remedy. The text is built only when read, since
/// errors may occur while memory is short.
package struct GroupError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The requested operation.
    package enum Act: String, Sendable {
        case find, make, adopt, inspect, freeze, thaw, stop, `continue`, kill, limit, weigh, throttle, remove
        case enter = "put a process into"
        case reclaim = "reclaim memory of"
        case protect = "guard"
    }

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
            "a group that gives controllers to child groups cannot hold processes: move the processes to a group below (K43)"
        case .kernel(ENODEV), .kernel(ENOENT), .replaced: "give the unit a new group"
        case .supervisors: "name a group of the unit alone, or give the unit another name"
        case .noGroup: "name a directory below where the hierarchies are mounted"
        case .occupied: "end the processes first"
        case .runs: "suspend the unit first"
        case .ancestor: "name the unit's own first process"
        case .foreign:
            "choose another prefix, or the directory of the supervisor that made the group, or end the processes"
        case .name: "use 1 to 64 letters, digits, -, _ and ., the first a letter or digit"
        case .kernel, .missing: nil
        }
    }
}

extension GroupError.Reason: CustomStringConvertible {
    package var description: String {
        switch self {
        case .kernel(let number): String(cString: strerror(number))
        case .replaced: "the group was removed, and another may have its path"
        case .supervisors: "the supervisor is in the group"
        case .noGroup: "the path is not a control group"
        case .missing(let what): what
        case .occupied(let count): "the group still holds \(count == 1 ? "a process" : "\(count) processes")"
        case .runs: "the processes run"
        case .ancestor(let pid, let other):
            other == getpid()
                ? "the supervisor is process \(pid) or its descendant"
                : "process \(other), which is not of the unit, is process \(pid) or its descendant"
        case .foreign(let count):
            "the group belongs to another supervisor, and holds \(count == 1 ? "a process" : "\(count) processes")"
        case .name: "the name is not allowed for a unit"
        }
    }
}

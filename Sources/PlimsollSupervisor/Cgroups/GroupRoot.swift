import Glibc
package import Plimsoll
package import PlimsollLinux
import Synchronization

/// The directories in which the supervisor may make groups for units, found by probing.
package struct GroupRoot: Sendable {
    /// The kind of machine. `capabilities` tells which files each hierarchy has.
    package enum Layout: String, Sendable {
        /// Version 2 for everything that version 2 provides.
        case unified
        /// Memory on version 1, with the freezer of version 2.
        case hybrid
        /// Version 1 alone, with the freezer of version 1.
        case version1
        /// No freezer: SIGSTOP.
        case signals
    }

    package let layout: Layout
    /// The directories in which groups are made.
    package let parents: [Hierarchy: String]
    /// The operations available on units here, with their files, and the reasons for those that are not.
    package let capabilities: Capabilities
    package let own: OwnGroups
    /// Prefix of our directories' names. Another supervisor on the machine uses another prefix.
    package let prefix: String

    /// Probes every hierarchy with a group that is removed again.
    ///
    /// - Parameter makesLeaf: true to move this process into a new group below the present one if the present group
    ///   can't otherwise enable controllers (K43). Only for delegated groups (`Delegate=yes`): elsewhere the service
    ///   manager does not expect the move.
    package init(prefix: String = "plimsoll", makesLeaf: Bool = false, kernel: any Kernel = HostKernel()) {
        var own = OwnGroups(kernel)
        var probe = GroupProbe(prefix: "\(prefix)-\(getpid())")
        probe.unified(own.places[.unified], leaf: makesLeaf ? "\(prefix)-supervisor" : nil)
        if probe.madeLeaf { own = OwnGroups(kernel) }
        for hierarchy in [Hierarchy.memory, .freezer, .cpu, .blkio] where !probe.isCovered(hierarchy) {
            probe.version1(hierarchy, own.places[hierarchy])
        }
        self.init(probe, own: own, prefix: prefix)
    }

    package init(_ probe: GroupProbe, own: OwnGroups, prefix: String) {
        (self.own, self.prefix) = (own, prefix)
        parents = probe.parents
        layout = probe.layout
        capabilities = probe.capabilities
    }

    /// Makes a group for the unit `name` in every useful hierarchy. Takes over a group that a former supervisor with
    /// this `prefix` left behind.
    package func make(_ name: String) throws(GroupError) -> UnitGroup {
        guard UnitValues.isUnitName(name) else { throw GroupError(.make, name, .name) }
        var made: [GroupDirectory] = []
        var isOld = false
        for hierarchy in Hierarchy.allCases {
            guard let parent = parents[hierarchy] else { continue }
            let path = "\(parent)/\(prefix)-\(name)"
            do throws(GroupError) {
                let isNew = mkdir(path, 0o755) == 0
                guard isNew || errno == EEXIST else { throw GroupError(.make, path, .kernel(errno)) }
                isOld = isOld || !isNew
                made.append(try GroupDirectory(hierarchy, path, isOurs: true, for: .make))
            } catch {
                for directory in made { rmdir(directory.path) }
                throw error
            }
        }
        let group = try UnitGroup(name, made, own: own)
        // An old group may have been killed by `cgroup.kill` before.
        if isOld { group.isEntered.store(true, ordering: .relaxed) }
        return group
    }

    /// Removes empty groups of that name, except those in `known`.
    ///
    /// - Parameter process: a process that a group may hold.
    /// - Throws: if there is another group with processes in it, or with processes that can't be read now, or the
    ///   supervisor's own group has the name.
    package func clear(_ name: String, sparing known: Set<GroupDirectory.Identity>, of process: Int32? = nil)
        throws(GroupError)
    {
        guard UnitValues.isUnitName(name) else { throw GroupError(.make, name, .name) }
        for (hierarchy, parent) in parents {
            let path = "\(parent)/\(prefix)-\(name)"
            let directory: GroupDirectory
            do throws(GroupError) { directory = try GroupDirectory(hierarchy, path, isOurs: false, for: .make) } catch {
                if case .kernel(let number) = error.reason, GroupDirectory.mayBeThere(number) { throw error }
                continue
            }
            if known.contains(directory.identity) { continue }
            if own.contains(directory) { throw GroupError(.make, path, .supervisors) }
            let processes = directory.processes()
            if !processes.isEmpty, process.map({ !processes.contains($0) }) ?? true {
                throw GroupError(.make, path, .foreign(processes.count))
            }
            guard processes.isEmpty else { continue }
            directory.removeChildren()
            // `make` would take over a group that stays.
            guard rmdir(path) == 0 || errno == ENOENT else { throw GroupError(.make, path, .kernel(errno)) }
        }
    }

    /// Makes the group at `path`, of either version, the unit `name`. No group is made, and none is removed with the
    /// unit.
    package func adopt(_ name: String, at path: String) throws(GroupError) -> UnitGroup {
        guard UnitValues.isUnitName(name) else { throw GroupError(.adopt, name, .name) }
        return try UnitGroup(name, [try GroupDirectory(Self.hierarchy(of: path), path, isOurs: false)], own: own)
    }

    /// Detects the hierarchy by files that only its groups have. The root groups lack some of them, and are refused
    /// anyway.
    private static func hierarchy(of path: String) -> Hierarchy {
        let marks: [(String, Hierarchy)] = [
            ("cgroup.controllers", .unified), ("memory.usage_in_bytes", .memory), ("freezer.state", .freezer),
            ("cpu.shares", .cpu),
        ]
        return marks.first { access("\(path)/\($0.0)", F_OK) == 0 }?.1 ?? .blkio
    }
}

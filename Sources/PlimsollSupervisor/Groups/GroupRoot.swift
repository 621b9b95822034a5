import Glibc
package import Plimsoll
package import PlimsollLinux
import Synchronization

/// Where the supervisor may make groups for its units, found out by doing it.
package struct GroupRoot: Sendable {
    /// What kind of machine this is; which of the hierarchies' files there are, `capabilities` says.
    package enum Layout: String, Sendable {
        /// Version 2 for everything it has.
        case unified
        /// Memory on version 1, the freezer of version 2.
        case hybrid
        /// Version 1 alone, with its freezer.
        case version1
        /// No freezer: SIGSTOP.
        case signals
    }

    package let layout: Layout
    /// The directories that groups are made in.
    package let parents: [Hierarchy: String]
    /// What can be done to units here and where, what can't and why.
    package let capabilities: Capabilities
    package let own: OwnGroups
    /// What the names of our directories begin with; another supervisor beside this one has another.
    package let prefix: String

    /// Probes every hierarchy with a group that is removed again.
    ///
    /// - Parameter makesLeaf: whether to move this process into a group of its own below the present one where only that allows the present one to have
    ///   controllers for others (K43). For delegated groups (`Delegate=yes`) alone: in others the service manager does not expect it.
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

    /// A new group for the unit `name`, in every hierarchy of use. One that a former supervisor of this `prefix` left behind is taken over.
    package func make(_ name: String) throws(GroupError) -> UnitGroup {
        guard Self.isName(name) else { throw GroupError(.make, name, .name) }
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
        // Nobody knows what has been done to it.
        if isOld { group.isEntered.store(true, ordering: .relaxed) }
        return group
    }

    /// Removes groups of that name that nobody is in, but those in `known`.
    ///
    /// - Parameter process: what it may hold as well.
    /// - Throws: if there is another one with processes in it.
    package func clear(_ name: String, sparing known: Set<GroupDirectory.Identity>, of process: Int32? = nil) throws(GroupError) {
        guard Self.isName(name) else { throw GroupError(.make, name, .name) }
        for (hierarchy, parent) in parents {
            let path = "\(parent)/\(prefix)-\(name)"
            guard let directory = try? GroupDirectory(hierarchy, path, isOurs: false), !known.contains(directory.identity) else { continue }
            let processes = directory.processes()
            if !processes.isEmpty, process.map({ !processes.contains($0) }) ?? true { throw GroupError(.make, path, .foreign(processes.count)) }
            guard processes.isEmpty else { continue }
            directory.removeChildren()
            rmdir(path)
        }
    }

    /// The unit `name` is what is in the group at `path`, of either version. Nothing is made, nor removed with the unit.
    package func adopt(_ name: String, at path: String) throws(GroupError) -> UnitGroup {
        guard Self.isName(name) else { throw GroupError(.adopt, name, .name) }
        return try UnitGroup(name, [try GroupDirectory(Self.hierarchy(of: path), path, isOurs: false)], own: own)
    }

    /// By the files that only a group of that hierarchy has; the root groups lack some and are refused anyway.
    private static func hierarchy(of path: String) -> Hierarchy {
        let marks: [(String, Hierarchy)] = [
            ("cgroup.controllers", .unified), ("memory.usage_in_bytes", .memory), ("freezer.state", .freezer), ("cpu.shares", .cpu),
        ]
        return marks.first { access("\(path)/\($0.0)", F_OK) == 0 }?.1 ?? .blkio
    }

    /// A name as `ServiceUnit.name` has it: it becomes a directory's.
    package static func isName(_ name: String) -> Bool {
        func isLetterOrDigit(_ byte: UInt8) -> Bool {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"): true
            default: false
            }
        }
        let bytes = name.utf8
        guard let first = bytes.first, isLetterOrDigit(first), bytes.count <= 64 else { return false }
        return bytes.allSatisfy { isLetterOrDigit($0) || [UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: ".")].contains($0) }
    }
}

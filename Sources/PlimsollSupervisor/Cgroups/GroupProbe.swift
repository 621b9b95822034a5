import Glibc
package import Plimsoll
package import PlimsollLinux

/// Result of making a group in each hierarchy and checking the group's files.
package struct GroupProbe: Sendable {
    /// The directories in which groups can be made.
    package private(set) var parents: [Hierarchy: String] = [:]
    /// The files that a new group has there.
    private var files: [Hierarchy: Set<String>] = [:]
    /// The reasons why no group can be made.
    private var reasons: [Hierarchy: String] = [:]
    /// The reasons why version 2 groups lack a controller, by controller.
    private var missing: [String: String] = [:]
    package private(set) var madeLeaf = false
    private let prefix: String

    package init(prefix: String) { self.prefix = prefix }

    // MARK: Version 2

    /// Looks for a parent below the own group, or beside the own group if the delegating manager has enabled
    /// controllers there. A group with processes of its own cannot enable controllers for groups below.
    package mutating func unified(_ place: GroupPlace?, leaf: String?) {
        guard case .directory(var own, let top)? = place else { return refuse(.unified, place) }
        var leaf = leaf
        // With DelegateSubgroup= in its unit, the supervisor starts in the leaf already. The group above was
        // delegated.
        if let name = leaf, own != top, own.hasSuffix("/" + name) {
            (own, leaf) = (String(own.dropLast(name.utf8.count + 1)), nil)
        }
        let missing = enable(own, leaf: leaf)
        self.missing = missing
        var candidates = [own]
        if own != top, let slash = own.lastIndex(of: "/"), missing["memory"] != nil {
            let parent = String(own[..<slash])
            if GroupText.words(parent + "/cgroup.subtree_control").contains("memory") {
                candidates.insert(parent, at: 0)
            }
        }
        for candidate in candidates where probe(.unified, candidate) { break }
    }

    /// Enables the available controllers for groups below `own`. Returns the reasons for the others, by controller.
    private mutating func enable(_ own: String, leaf: String?) -> [String: String] {
        let available = GroupText.words(own + "/cgroup.controllers")
        var missing: [String: String] = [:]
        for controller in ["memory", "cpu", "io"]
        where !GroupText.words(own + "/cgroup.subtree_control").contains(controller) {
            guard available.contains(controller) else {
                missing[controller] = "\(own) has no \(controller) controller"
                continue
            }
            var refusal = GroupText.write("+\(controller)", to: own + "/cgroup.subtree_control")
            if refusal == EBUSY, let leaf, !madeLeaf, move(to: own + "/" + leaf) {
                refusal = GroupText.write("+\(controller)", to: own + "/cgroup.subtree_control")
            }
            if let refusal {
                missing[controller] =
                    "+\(controller) to \(own)/cgroup.subtree_control: \(String(cString: strerror(refusal)))"
                if refusal == EBUSY { missing[controller]! += ", because that group itself holds processes (K43)" }
            }
        }
        return missing
    }

    /// Moves only this process. Other processes in the group are not ours to move; if there are any, the group keeps
    /// having processes.
    private mutating func move(to leaf: String) -> Bool {
        guard mkdir(leaf, 0o755) == 0 || errno == EEXIST else { return false }
        madeLeaf = GroupText.write("0", to: leaf + "/cgroup.procs") == nil
        return madeLeaf
    }

    // MARK: Version 1

    package mutating func version1(_ hierarchy: Hierarchy, _ place: GroupPlace?) {
        guard case .directory(let own, _)? = place else { return refuse(hierarchy, place) }
        _ = probe(hierarchy, own)
        // Groups of a hierarchy without useful files would only be in the way.
        if hierarchy == .blkio, !has("blkio.bfq.weight", .blkio), !has("blkio.weight", .blkio) {
            parents[.blkio] = nil
            reasons[.blkio] = "the kernel's disk schedulers have no weights"
        }
    }

    /// Returns true if version 2 already provides the function of this version 1 hierarchy.
    package func isCovered(_ hierarchy: Hierarchy) -> Bool {
        switch hierarchy {
        case .unified: true
        case .memory: has("memory.current", .unified)
        case .freezer: has("cgroup.freeze", .unified)
        case .cpu: has("cpu.weight", .unified)
        case .blkio: has("io.weight", .unified)
        }
    }

    // MARK: Probing

    private mutating func refuse(_ hierarchy: Hierarchy, _ place: GroupPlace?) {
        if case .hidden(let reason)? = place { reasons[hierarchy] = reason }
    }

    /// Makes a group, records the group's files, and removes the group again.
    private mutating func probe(_ hierarchy: Hierarchy, _ parent: String) -> Bool {
        removeLeftovers(in: parent)
        let path = "\(parent)/\(prefix)-probe"
        guard mkdir(path, 0o755) == 0 || errno == EEXIST else {
            reasons[hierarchy] = "\(path): \(String(cString: strerror(errno)))"
            return false
        }
        defer { rmdir(path) }
        let wanted = [
            "cgroup.freeze", "cgroup.kill", "memory.current", "memory.max", "memory.reclaim", "memory.swap.current",
            "memory.pressure", "cpu.weight",
            "cpu.max", "io.weight", "memory.usage_in_bytes", "memory.limit_in_bytes", "freezer.state", "cpu.shares",
            "cpu.cfs_quota_us",
            "blkio.bfq.weight", "blkio.weight",
        ]
        files[hierarchy] = Set(wanted.filter { access("\(path)/\($0)", F_OK) == 0 })
        parents[hierarchy] = parent
        return true
    }

    /// Removes probe groups of processes that were killed before they could remove them. `prefix` ends with this
    /// process's number; leftovers have other numbers.
    private func removeLeftovers(in parent: String) {
        guard let dash = prefix.lastIndex(of: "-") else { return }
        let base = prefix[...dash]
        for name in HostKernel.listing(of: parent).names where name.hasPrefix(base) && name.hasSuffix("-probe") {
            // Skip groups of a longer prefix, and groups whose process is still at work.
            guard let process = Int32(name.dropFirst(base.count).dropLast("-probe".count)), kill(process, 0) != 0,
                errno == ESRCH
            else { continue }
            rmdir("\(parent)/\(name)")
        }
    }

    func has(_ file: String, _ hierarchy: Hierarchy) -> Bool {
        files[hierarchy]?.contains(file) == true && parents[hierarchy] != nil
    }

    package var layout: GroupRoot.Layout {
        if has("cgroup.freeze", .unified) { return has("memory.usage_in_bytes", .memory) ? .hybrid : .unified }
        return has("freezer.state", .freezer) ? .version1 : .signals
    }

    // MARK: Report

    /// The capabilities in the order of a supervisor's work: freeze, kill, measure, limit, share.
    package var capabilities: Capabilities {
        let v2 = "use a kernel and a system with cgroup version 2 (Linux 5.14 or later)"
        let signals = [
            signal(
                "freeze", ["cgroup.freeze", "freezer.state"],
                "; units are stopped by SIGSTOP, which their parents observe",
                v2),
            signal(
                "kill", ["cgroup.kill"], "; each process receives SIGKILL through its pidfd until none is left", nil),
            signal(
                "charge", ["memory.current", "memory.usage_in_bytes"],
                "; the proportional set sizes of the processes are added up", v2),
            signal("limits", ["memory.max", "memory.limit_in_bytes"], "", v2),
            signal(
                "reclaim", ["memory.reclaim"],
                has("memory.limit_in_bytes", .memory) ? "; memory.limit_in_bytes is lowered for a moment" : "", v2),
            swap,
            signal("weights", ["cpu.weight", "cpu.shares"], "", v2),
            signal("disk weights", ["io.weight", "blkio.bfq.weight", "blkio.weight"], "", nil),
            signal(
                "throttle", ["cpu.max", "cpu.cfs_quota_us"],
                "; a unit too long in the background is ended without being throttled first", v2),
            signal("stall", ["memory.pressure"], "", "boot with psi=1 on a kernel that has CONFIG_PSI"),
        ]
        let support: Capabilities.Support = signals[2].isLive ? .ownGroup : .machine
        return Capabilities(support: support, signals: signals)
    }

    private func signal(_ name: String, _ candidates: [String], _ instead: String, _ remedy: String?)
        -> Capabilities.Signal
    {
        for candidate in candidates {
            for hierarchy in Hierarchy.allCases where has(candidate, hierarchy) {
                return .init(name, isLive: true, "\(parents[hierarchy]!)/*/\(candidate)")
            }
        }
        // The controller's name ends at the first full stop. Files with the prefix `cgroup.` belong to no controller.
        let controller = String(candidates[0].prefix { $0 != "." })
        let unified = parents[.unified] == nil ? reasons[.unified] : missing[controller]
        let version1 = Hierarchy.allCases.first { hierarchy in
            hierarchy != .unified && candidates.contains { $0.hasPrefix("\(hierarchy.rawValue).") }
        }
        let why = [unified, version1.flatMap { reasons[$0] }].compactMap { $0 }
        let reason = why.isEmpty ? "groups here have no \(candidates[0])" : why.joined(separator: "; ")
        return .init(name, isLive: false, reason + instead, remedy: remedy)
    }

    private var swap: Capabilities.Signal {
        let remedy =
            "add swap or zram: without swap, the kernel reclaims only page cache and volatile memory of a suspended unit"
        guard let table: [UInt8] = try? GroupText.read("/proc/swaps").get(),
            table.split(separator: UInt8(ascii: "\n")).count > 1
        else {
            return .init("swap", isLive: false, "the machine has none", remedy: remedy)
        }
        return .init("swap", isLive: true, "/proc/swaps")
    }
}

/// A directory of a control group that is ours and can be seen, or why there is none.
package enum GroupPlace: Equatable, Sendable {
    /// `directory` is the own group's; nothing above `top`, where the hierarchy is mounted, can be seen.
    case directory(String, top: String)
    /// The reason, for an operator.
    case hidden(String)

    /// The directory, if it can be seen.
    package var path: String? {
        if case .directory(let path, _) = self { path } else { nil }
    }
}

/// The groups of this process: where its memory is accounted, and where its stall is.
package struct ControlGroup: Equatable, Sendable {
    /// Which generation of the memory controller rules.
    package enum Version: Sendable { case v1, v2 }

    /// The generation that has the memory controller.
    package var version: Version
    /// The group of the memory controller.
    package var memory: GroupPlace
    /// Whether something failed that may succeed next time.
    package var isUncertain = false
    /// The group of the version 2 hierarchy, which keeps stall even where the memory controller is on version 1.
    package var unified: GroupPlace

    /// Joins what the process is told it belongs to with what it can see. Nothing is taken to lie at a fixed path.
    package init(_ kernel: any Kernel) {
        let groups = kernel.contents(of: "/proc/self/cgroup")
        let table = kernel.contents(of: "/proc/self/mountinfo")
        guard case .success(let groups) = groups, case .success(let table) = table else {
            let error = groups.failure ?? table.failure ?? .malformed
            let reason = "\(groups.failure == nil ? "/proc/self/mountinfo" : "/proc/self/cgroup"): \(error)"
            isUncertain = !error.isLasting
            version = .v2
            memory = .hidden(reason)
            unified = .hidden(reason)
            return
        }
        let membership = Membership(groups)
        let mounts = MountTable(table)
        var isUncertain = false
        unified = Self.place(of: membership.unified, among: mounts.unified, "cgroup version 2", kernel, &isUncertain)
        let isVersion1 = membership.memory != nil && !mounts.memory.isEmpty
        version = isVersion1 ? .v1 : .v2
        memory =
            isVersion1 ? Self.place(of: membership.memory, among: mounts.memory, "the version 1 memory controller", kernel, &isUncertain) : unified
        self.isUncertain = isUncertain
    }

    /// The own group in the version 1 hierarchy of `controller`, or why none can be seen.
    package static func version1(_ controller: String, _ kernel: any Kernel) -> GroupPlace {
        guard case .success(let groups) = kernel.contents(of: "/proc/self/cgroup"),
            case .success(let table) = kernel.contents(of: "/proc/self/mountinfo")
        else { return .hidden("/proc can't be read") }
        var isUncertain = false
        return place(
            of: Membership(groups, controller: controller).memory, among: MountTable(table, controller: controller).memory,
            "the version 1 \(controller) controller", kernel, &isUncertain)
    }

    /// The directory of the group at `path` below the first mount that shows it, if it really is ours.
    private static func place(
        of path: String?, among mounts: [MountTable.Mount], _ name: String, _ kernel: any Kernel, _ isUncertain: inout Bool
    ) -> GroupPlace {
        guard let path else { return .hidden("the process is in no group of \(name)") }
        guard !mounts.isEmpty else { return .hidden("\(name) is not mounted") }
        var reason = ""
        for mount in mounts {
            let place = mount.place(of: path)
            guard case .directory(let directory, _) = place else {
                if case .hidden(let why) = place { reason = why }
                continue
            }
            guard kernel.status(of: directory) == .directory else {
                // Being in a group that can't be seen where it should be is not how things stay.
                isUncertain = true
                reason = "\(directory) is not there"
                continue
            }
            if isForeign(directory, kernel) {
                // It may have been moved between two reads of ours.
                isUncertain = true
                reason = "\(directory) does not list this process"
                continue
            }
            return place
        }
        return .hidden(reason)
    }

    /// Whether `cgroup.procs` can be read and does not list us. It can't be in threaded groups, and then proves nothing (K19).
    private static func isForeign(_ directory: String, _ kernel: any Kernel) -> Bool {
        guard case .success(let text) = kernel.contents(of: directory + "/cgroup.procs") else { return false }
        let own = Array(String(kernel.processID).utf8)
        return !text.split(separator: KernelText.newline).contains { $0.elementsEqual(own) }
    }
}

extension MountTable.Mount {
    /// Where the group at `path` is seen in this mount. Paths are compared by their components: `/ab` is not below `/a`.
    func place(of path: String) -> GroupPlace {
        let wanted = path.split(separator: "/")
        let shown = root.split(separator: "/")
        if wanted.first == ".." { return .hidden("the process was moved to \(path), outside its cgroup namespace") }
        if shown.first == ".." { return .hidden("\(point) shows the group \(root), above this cgroup namespace, and not where in it we are") }
        guard wanted.starts(with: shown) else { return .hidden("\(point) shows the group \(root), which \(path) is not part of") }
        let top = point == "/" ? "" : point
        return .directory(wanted.dropFirst(shown.count).reduce(top) { "\($0)/\($1)" }, top: top)
    }
}

extension Result {
    /// The error, if it is one.
    var failure: Failure? {
        if case .failure(let error) = self { error } else { nil }
    }
}

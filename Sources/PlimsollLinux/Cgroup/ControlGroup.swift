#if canImport(Glibc) && !PLIMSOLL_INERT
/// The directory of a control group of this process, if visible, or the reason why not.
package enum GroupPlace: Equatable, Sendable {
    /// `directory` is the own group's. `top` is the mount point of the hierarchy; nothing above is visible.
    case directory(String, top: String)
    /// The reason, for an operator.
    case hidden(String)

    /// The directory, if visible.
    package var path: String? {
        if case .directory(let path, _) = self { path } else { nil }
    }
}

/// The groups of this process: the one that accounts memory, and the one that measures stall.
package struct ControlGroup: Equatable, Sendable {
    /// The generation of the memory controller in use.
    package enum Version: Sendable { case v1, v2 }

    /// The generation that has the memory controller.
    package var version: Version
    package var memory: GroupPlace
    /// True if an operation failed that may succeed next time.
    package var isUncertain = false
    /// The group of the version 2 hierarchy, which measures stall even where the memory controller is on version 1.
    package var unified: GroupPlace

    /// Combines the process's membership with the visible mounts. No fixed path is assumed.
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
            isVersion1
            ? Self.place(
                of: membership.memory, among: mounts.memory, "the version 1 memory controller", kernel, &isUncertain)
            : unified
        self.isUncertain = isUncertain
    }

    /// Returns the directories of the own group in all mounts of the version 2 hierarchy.
    static func unifiedDirectories(_ kernel: any Kernel) -> [String] {
        guard case .success(let groups) = kernel.contents(of: "/proc/self/cgroup"),
            case .success(let table) = kernel.contents(of: "/proc/self/mountinfo"),
            let path = Membership(groups).unified
        else { return [] }
        return MountTable(table).unified.compactMap { $0.place(of: path).path }
    }

    /// Returns the own group in the version 1 hierarchy of `controller`, or the reason why none is visible.
    package static func version1(_ controller: String, _ kernel: any Kernel) -> GroupPlace {
        guard case .success(let groups) = kernel.contents(of: "/proc/self/cgroup"),
            case .success(let table) = kernel.contents(of: "/proc/self/mountinfo")
        else { return .hidden("cannot read /proc") }
        var isUncertain = false
        return place(
            of: Membership(groups, controller: controller).memory,
            among: MountTable(table, controller: controller).memory,
            "the version 1 \(controller) controller", kernel, &isUncertain)
    }

    /// Returns the directory of the group at `path` below the first mount that shows the group, if the group really is
    /// ours.
    private static func place(
        of path: String?, among mounts: [MountTable.Mount], _ name: String, _ kernel: any Kernel,
        _ isUncertain: inout Bool
    ) -> GroupPlace {
        guard let path else { return .hidden("the process is in no group of \(name)") }
        guard !mounts.isEmpty else { return .hidden("\(name) is not mounted") }
        // A mount that can't be reached leaves no doubt where another shows the group.
        var reason = "", mayBeVisible = false
        for mount in mounts {
            let place = mount.place(of: path)
            guard case .directory(let directory, _) = place else {
                if case .hidden(let why) = place { reason = why }
                continue
            }
            guard kernel.status(of: directory) == .directory else {
                // A process must be in a visible group, so this state will not last.
                mayBeVisible = true
                reason = "\(directory) does not exist"
                continue
            }
            if isForeign(directory, kernel) {
                // The process may have been moved between two reads.
                mayBeVisible = true
                reason = "\(directory) does not list this process"
                continue
            }
            return place
        }
        if mayBeVisible { isUncertain = true }
        return .hidden(reason)
    }

    /// Returns true if `cgroup.procs` can be read and does not list this process. In threaded groups the file can't be
    /// read, and then proves nothing (K19).
    private static func isForeign(_ directory: String, _ kernel: any Kernel) -> Bool {
        guard case .success(let text) = kernel.contents(of: directory + "/cgroup.procs") else { return false }
        let own = Array(String(kernel.processID).utf8)
        return !text.split(separator: KernelText.newline).contains { $0.elementsEqual(own) }
    }
}

extension MountTable.Mount {
    /// Returns the place of the group at `path` in this mount. Paths are compared by their components: `/ab` is not
    /// below `/a`.
    func place(of path: String) -> GroupPlace {
        let wanted = path.split(separator: "/")
        let shown = root.split(separator: "/")
        if wanted.first == ".." { return .hidden("the process was moved to \(path), outside its cgroup namespace") }
        if shown.first == ".." {
            return .hidden(
                "\(point) shows the group \(root), above this cgroup namespace, and not the position of this process")
        }
        guard wanted.starts(with: shown) else {
            return .hidden("\(point) shows the group \(root), which \(path) is not part of")
        }
        let top = point == "/" ? "" : point
        return .directory(wanted.dropFirst(shown.count).reduce(top) { "\($0)/\($1)" }, top: top)
    }
}

extension Result {
    /// The error, if the result is one.
    var failure: Failure? {
        if case .failure(let error) = self { error } else { nil }
    }
}

/// The groups of this process, from `/proc/self/cgroup`: paths below the root of the process's cgroup namespace.
package struct Membership: Equatable, Sendable {
    /// The path in the version 2 hierarchy; `nil` without one.
    package var unified: String?
    /// The path in the version 1 hierarchy that has the memory controller, or another requested one; `nil` without one.
    package var memory: String?

    /// Parses lines of the form `ID:CONTROLLERS:PATH`. A path may hold colons, and has a suffix if the group was
    /// removed. Lines not understood are skipped.
    package init(_ text: [UInt8], controller: String = "memory") {
        for line in text.split(separator: KernelText.newline) {
            let fields = line.split(separator: UInt8(ascii: ":"), maxSplits: 2, omittingEmptySubsequences: false)
            guard fields.count == 3, fields[2].first == UInt8(ascii: "/") else { continue }
            var path = String(decoding: fields[2], as: UTF8.self)
            if path.hasSuffix(" (deleted)") { path.removeLast(10) }
            if fields[0].elementsEqual("0".utf8), fields[1].isEmpty {
                unified = path
            } else if fields[1].split(separator: UInt8(ascii: ",")).contains(where: {
                $0.elementsEqual(controller.utf8)
            }) {
                memory = path
            }
        }
    }
}

/// The mounts of the cgroup hierarchies, from `/proc/self/mountinfo`.
package struct MountTable: Equatable, Sendable {
    package struct Mount: Equatable, Sendable {
        /// The group visible at `point`, as a path from the root of our cgroup namespace: `/..` is above.
        package var root: String
        /// The directory in our file system.
        package var point: String
    }

    /// Mounts of the version 2 hierarchy, latest first.
    package private(set) var unified: [Mount] = []
    /// Mounts of the version 1 hierarchy with the memory controller, or another requested one, latest first.
    package private(set) var memory: [Mount] = []

    /// Parses lines of the form `ID PARENT DEVICE ROOT POINT OPTIONS [TAG...] - TYPE SOURCE OPTIONS`, with any number
    /// of tags. Lines not understood are skipped.
    package init(_ text: [UInt8], controller: String = "memory") {
        for line in text.split(separator: KernelText.newline) {
            let fields = line.split(separator: KernelText.space)
            guard fields.count >= 9, let dash = fields[6...].firstIndex(where: { $0.elementsEqual("-".utf8) }),
                dash + 1 < fields.count
            else {
                continue
            }
            let mount = Mount(root: Self.unescaped(fields[3]), point: Self.unescaped(fields[4]))
            guard mount.root.utf8.first == UInt8(ascii: "/"), mount.point.utf8.first == UInt8(ascii: "/") else {
                continue
            }
            if fields[dash + 1].elementsEqual("cgroup2".utf8) {
                unified.insert(mount, at: 0)
            } else if fields[dash + 1].elementsEqual("cgroup".utf8), let options = fields.last,
                options.split(separator: UInt8(ascii: ",")).contains(where: { $0.elementsEqual(controller.utf8) })
            {
                memory.insert(mount, at: 0)
            }
        }
    }

    /// Undoes the kernel's escapes: a space is written `\040`.
    private static func unescaped(_ field: ArraySlice<UInt8>) -> String {
        var bytes: [UInt8] = []
        var rest = field
        while let byte = rest.popFirst() {
            let digits = rest.prefix(3)
            if byte == UInt8(ascii: "\\"), digits.count == 3,
                digits.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "7")).contains($0) })
            {
                bytes.append(UInt8(truncatingIfNeeded: digits.reduce(0) { $0 * 8 + Int($1 - UInt8(ascii: "0")) }))
                rest = rest.dropFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
#endif

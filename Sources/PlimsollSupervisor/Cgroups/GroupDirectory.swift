import CPlimsollSupervisor
import Glibc
package import PlimsollLinux

/// The kernel's cgroup hierarchies that a supervisor uses.
package enum Hierarchy: String, Sendable, Hashable, CaseIterable {
    /// Cgroup version 2.
    case unified
    /// Cgroup version 1, named by controller.
    case memory, freezer, cpu, blkio
}

/// An open directory of a cgroup. Writes go to the group that was opened, even if another group has taken the path
/// since.
package final class GroupDirectory: Sendable {
    /// Identifies a directory. Device and inode pairs are not reused while the kernel runs (fs/kernfs/dir.c counts
    /// generations).
    package struct Identity: Hashable, Sendable {
        package var device: UInt64
        package var inode: UInt64
    }

    package let hierarchy: Hierarchy
    package let path: String
    package let identity: Identity
    /// Open as long as this object exists.
    package let descriptor: Int32
    /// True if the supervisor made the group, and therefore removes it.
    package let isOurs: Bool
    // The path for system calls, copied once because `check` must not allocate. Never written to; freed by `deinit`.
    private nonisolated(unsafe) let pathBytes: UnsafeMutablePointer<CChar>

    package init(_ hierarchy: Hierarchy, _ path: String, isOurs: Bool, for act: GroupError.Act = .adopt)
        throws(GroupError)
    {
        let descriptor = Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw GroupError(act, path, .kernel(errno)) }
        guard let identity = Identity(of: descriptor), faccessat(descriptor, "cgroup.procs", F_OK, 0) == 0 else {
            close(descriptor)
            throw GroupError(act, path, .noGroup)
        }
        (self.hierarchy, self.path, self.identity, self.descriptor, self.isOurs) = (
            hierarchy, path, identity, descriptor, isOurs
        )
        pathBytes = strdup(path)
    }

    deinit {
        close(descriptor)
        free(pathBytes)
    }

    /// Throws if the path leads to another directory by now. Allocates nothing unless it throws.
    package func check(for act: GroupError.Act) throws(GroupError) {
        var status = stat()
        guard stat(pathBytes, &status) == 0, Identity(status) == identity else {
            throw GroupError(act, path, .replaced)
        }
    }

    package func has(_ name: String) -> Bool { faccessat(descriptor, name, F_OK, 0) == 0 }

    /// Opens a file in the directory with close-on-exec. Returns -1 if the file can't be opened.
    func open(_ name: String, _ flags: Int32) -> Int32 { openat(descriptor, name, flags | O_CLOEXEC) }

    /// Returns the number in a file, or the number after `key`; `nil` if there is none.
    func number(_ name: String, key: String? = nil) -> Int? {
        guard case .success(let text) = GroupText.read(name, in: descriptor) else { return nil }
        return if let key { GroupText.number(of: key, in: text) } else { GroupText.number(text) }
    }

    /// Writes to a file in the directory.
    func write(_ text: String, to name: String, for act: GroupError.Act) throws(GroupError) {
        try check(for: act)
        if let number = GroupText.write(text, to: name, in: descriptor) {
            throw GroupError(act, "\(path)/\(name)", .kernel(number))
        }
    }

    /// Returns all processes in the group and below, as far as they can be read now. Groups that vanish during the
    /// walk are skipped.
    func processes(depth: Int = 12) -> Set<Int32> { Self.processes(descriptor, depth).pids }

    /// Returns the processes in the group and below, and true if all could be read.
    func list() -> (pids: Set<Int32>, isWhole: Bool) { Self.processes(descriptor, 12) }

    /// True if no process is left in the group and below; zombies do not count. False if the processes can't be read
    /// now.
    var isEmpty: Bool {
        let (pids, isWhole) = Self.processes(descriptor, 12)
        return isWhole && pids.allSatisfy { ProcessTable.isOver($0) }
    }

    private static func processes(_ directory: Int32, _ depth: Int) -> (pids: Set<Int32>, isWhole: Bool) {
        switch GroupText.read("cgroup.procs", in: directory) {
        case .failure(let failure): return ([], !mayBeThere(failure.number))
        case .success(let text):
            var pids = GroupText.pids(text), isWhole = true
            let sawAll = forEachChild(of: directory) { child, _ in
                guard depth > 0 else { return }
                let below = processes(child, depth - 1)
                pids.formUnion(below.pids)
                isWhole = isWhole && below.isWhole
            }
            return (pids, isWhole && sawAll)
        }
    }

    /// Returns true if a file that can't be read for this reason may exist: descriptors or memory are short, or reading
    /// failed. Other reasons mean that the file does not exist.
    static func mayBeThere(_ number: Int32) -> Bool {
        [EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN, EIO].contains(number)
    }

    /// Removes the groups below, deepest first. Groups that hold processes stay.
    func removeChildren() { Self.removeChildren(of: descriptor, 12) }

    private static func removeChildren(of directory: Int32, _ depth: Int) {
        forEachChild(of: directory) { child, name in
            if depth > 0 { removeChildren(of: child, depth - 1) }
            unlinkat(directory, name, AT_REMOVEDIR)
        }
    }

    /// Calls `body` with the descriptor and the name of each group in a directory.
    ///
    /// - Returns: false if there may be groups that can't be opened now.
    @discardableResult
    private static func forEachChild(of directory: Int32, _ body: (Int32, String) -> Void) -> Bool {
        let copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0 else { return !mayBeThere(errno) }
        guard let stream = fdopendir(copy) else {
            close(copy)
            return false
        }
        defer { closedir(stream) }
        var sawAll = true
        while let entry = readdir(stream) {
            guard entry.pointee.d_type == DT_DIR else { continue }
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
            }
            guard !name.hasPrefix(".") else { continue }
            let child = openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
            guard child >= 0 else {
                sawAll = sawAll && !mayBeThere(errno)
                continue
            }
            body(child, name)
            close(child)
        }
        return sawAll
    }
}

extension GroupDirectory.Identity {
    init(_ status: stat) { self.init(device: UInt64(status.st_dev), inode: UInt64(status.st_ino)) }

    init?(of descriptor: Int32) {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { return nil }
        self.init(status)
    }

    /// Identifies the directory at `path`; `nil` if there is none.
    package init?(at path: String) {
        var status = stat()
        guard stat(path, &status) == 0 else { return nil }
        self.init(status)
    }
}

/// The groups of the supervisor itself. These groups and all above them never become a unit's: a supervisor that
/// freezes or kills one of them stops itself (T32).
package struct OwnGroups: Sendable {
    /// The own group by hierarchy, with the mount above which no group is visible, or the reason why the group is
    /// unknown.
    package let places: [Hierarchy: GroupPlace]
    private let forbidden: Set<GroupDirectory.Identity>
    private let membership: [UInt8]

    /// Reads the groups of this process.
    package init(_ kernel: any Kernel = HostKernel()) {
        // Read first: `isCurrent` then detects a change during the rest of the work.
        let membership: [UInt8] = (try? GroupText.read("/proc/self/cgroup").get()) ?? []
        var places: [Hierarchy: GroupPlace] = [.unified: ControlGroup(kernel).unified]
        for hierarchy in Hierarchy.allCases where hierarchy != .unified {
            places[hierarchy] = ControlGroup.version1(hierarchy.rawValue, kernel)
        }
        self.init(places: places, membership: membership)
    }

    package init(places: [Hierarchy: GroupPlace], membership: [UInt8] = []) {
        self.places = places
        self.membership = membership
        var forbidden: Set<GroupDirectory.Identity> = []
        for case .directory(var path, let top) in places.values {
            while path.utf8.count >= top.utf8.count, !path.isEmpty {
                if let identity = GroupDirectory.Identity(at: path) { forbidden.insert(identity) }
                guard path != top, let slash = path.lastIndex(of: "/") else { break }
                path = String(path[..<slash])
            }
        }
        self.forbidden = forbidden
    }

    /// Returns true if `directory` is one of the own groups or above one, regardless of its path.
    package func contains(_ directory: GroupDirectory) -> Bool { forbidden.contains(directory.identity) }

    /// True if the supervisor is still in the same groups. Allocates nothing.
    package var isCurrent: Bool { membership.withUnsafeBytes { plimsoll_membership_is($0.baseAddress, $0.count) != 0 } }
}

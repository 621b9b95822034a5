import CPlimsollSupervisor
import Glibc
import PlimsollLinux
import Synchronization

/// The exclusive claim of a supervisor on its directory, and on its prefix where the groups are. Uses a lock (flock(2))
/// on a file of the directory, and one on a group `PREFIX.lock` of each hierarchy.
///
/// The guard keeps copies of the files. When the supervisor is killed, the next one waits until the guard has thawed
/// the frozen units. So the guard can't thaw units that were frozen later. Other users can't take these locks: only the
/// owner may open the files.
final class SupervisorClaim: Sendable {
    private struct State {
        var file: Int32 = -1
        /// Locked files of groups, and their paths.
        var groups: [(file: Int32, path: String)] = []
    }

    private let state = Mutex(State())
    private let directory: String
    /// The groups locked by supervisors of this process. The kernel's table also names this process when only the guard
    /// is left.
    private static let held = Mutex<Set<String>>([])
    /// The time limit for the guard of an ended supervisor to finish.
    private static let patience: Duration = .seconds(5)

    /// Claims a directory before anything in there is touched.
    ///
    /// - Throws: an error that names the process with the claim.
    init(directory: String) throws(SupervisorError) {
        self.directory = directory
        let path = "\(directory)/supervisor.lock"
        let file = try Self.lock("the directory \(directory)", holder: { Self.holder(writtenIn: $0) }) {
            () throws(SupervisorError) -> (file: Int32, path: String)? in
            let file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
            guard file >= 0 else {
                throw SupervisorError(
                    "cannot open \(path): \(String(cString: strerror(errno))); give the supervisor a directory of its own"
                )
            }
            return (file, path)
        }
        let text = Array("\(getpid()) \(ProcessTable.stat(of: getpid())?.started ?? 0)\n".utf8)
        ftruncate(file, 0)
        _ = pwrite(file, text, text.count, 0)
        state.withLock { $0.file = file }
    }

    /// Claims a prefix where groups are made.
    ///
    /// - Throws: an error that names the process with the claim.
    func claim(_ prefix: String, in parents: some Collection<String>) throws(SupervisorError) {
        for parent in Set(parents).sorted() {
            let path = "\(parent)/\(prefix).lock"
            let file = try Self.lock("the prefix \(prefix) in \(parent)", holder: { Self.holder(inTableOf: $0, path) })
            {
                () throws(SupervisorError) -> (file: Int32, path: String)? in
                guard mkdir(path, 0o755) == 0 || errno == EEXIST else {
                    throw SupervisorError("cannot make the group \(path): \(String(cString: strerror(errno)))")
                }
                let file = open("\(path)/cgroup.procs", O_WRONLY | O_CLOEXEC)
                // The owner removed the group at this moment.
                if file < 0, errno == ENOENT { return nil }
                guard file >= 0 else {
                    throw SupervisorError("cannot open \(path)/cgroup.procs: \(String(cString: strerror(errno)))")
                }
                return (file, "\(path)/cgroup.procs")
            }
            state.withLock { $0.groups.append((file, path)) }
            Self.held.withLock { _ = $0.insert(path) }
        }
    }

    /// The descriptors that hold the locks. The guard keeps copies.
    var descriptors: [Int32] { state.withLock { [$0.file] + $0.groups.map(\.file) } }

    deinit {
        state.withLock { state in
            for group in state.groups {
                Self.held.withLock { _ = $0.remove(group.path) }
                rmdir(group.path)
                close(group.file)
            }
            guard state.file >= 0 else { return }
            // Clears the name of the holder. The file stays locked until the guard has finished.
            ftruncate(state.file, 0)
            close(state.file)
        }
    }

    // MARK: - Locking

    /// Locks the file from `open`, and verifies that the path still leads to the same file.
    private static func lock(
        _ what: String, holder: (Int32) -> Holder, _ open: () throws(SupervisorError) -> (file: Int32, path: String)?
    ) throws(SupervisorError) -> Int32 {
        let deadline = ContinuousClock.now + patience
        while true {
            guard let (file, path) = try open() else { continue }
            if flock(file, LOCK_EX | LOCK_NB) == 0 {
                if let identity = GroupDirectory.Identity(of: file), identity == GroupDirectory.Identity(at: path) {
                    return file
                }
                close(file)
                continue
            }
            let number = errno, holder = holder(file)
            close(file)
            guard number == EWOULDBLOCK || number == EINTR else {
                throw SupervisorError("cannot lock \(what): \(String(cString: strerror(number)))")
            }
            if case .alive(let pid) = holder {
                throw SupervisorError(
                    "cannot use \(what) because another supervisor does: process \(pid); stop that supervisor first, or choose another directory and prefix"
                )
            }
            guard ContinuousClock.now < deadline else {
                throw SupervisorError(
                    "cannot use \(what) because the guard (plimsoll-guard) of an ended supervisor still locks it after \(patience); "
                        + "look for a process that is stopped, and try again")
            }
            _ = plimsoll_ready(-1, 0, 10)
        }
    }

    /// Returns true if a supervisor holds the claim on that directory now.
    static func isHeld(_ directory: String) -> Bool {
        let file = open("\(directory)/supervisor.lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard file >= 0 else { return false }
        defer { close(file) }
        if case .alive = holder(writtenIn: file) { return true }
        return false
    }

    private enum Holder {
        case alive(Int32)
        /// The holder has ended or is about to; the guard is still at work.
        case gone
    }

    private static func holder(writtenIn file: Int32) -> Holder {
        var text = [UInt8](repeating: 0, count: 64)
        let count = pread(file, &text, text.count, 0)
        let words = String(decoding: text[..<max(0, count)], as: UTF8.self).split(whereSeparator: \.isWhitespace)
        guard words.count == 2, let pid = Int32(words[0]), let stat = ProcessTable.stat(of: pid), !stat.isOver,
            "\(stat.started)" == words[1]
        else {
            return .gone
        }
        return .alive(pid)
    }

    /// A group's file doesn't name the holder of the lock, so this function searches the kernel's table.
    private static func holder(inTableOf file: Int32, _ path: String) -> Holder {
        if held.withLock({ $0.contains(path) }) { return .alive(getpid()) }
        var status = stat()
        guard fstat(file, &status) == 0 else { return .gone }
        let (device, inode) = (UInt64(status.st_dev), UInt64(status.st_ino))
        let holders = LockTable().locks.filter { lock in
            let words = lock.file.split(separator: ":")
            guard lock.kind == "FLOCK", words.count == 3, let major = UInt64(words[0], radix: 16),
                let minor = UInt64(words[1], radix: 16)
            else {
                return false
            }
            return words[2] == "\(inode)" && number(major, minor) == device
        }
        // This process: one of its supervisors has just ended, and the guard has not.
        guard let pid = holders.first?.pid, pid != getpid(), let stat = ProcessTable.stat(of: pid), !stat.isOver else {
            return .gone
        }
        return .alive(pid)
    }

    /// Returns a device number as in `stat` (makedev(3)).
    private static func number(_ major: UInt64, _ minor: UInt64) -> UInt64 {
        (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff
    }
}

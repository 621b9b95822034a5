import Glibc
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollLinux

/// A separate group, for a child process that reaches its limits.
///
/// On version 1 the group lies below the group of this process. On version 2, a group with processes may have no
/// controllers below, so the group lies beside: only in the test bed, which gives the place in `$BOX`. The source under
/// test stays outside, and learns of the group from a kernel that answers `/proc/self/cgroup` for the group.
struct ChildGroup: Kernel {
    let directory: String
    private let host = HostKernel()
    private let membership: Int32

    /// Returns the directory in which groups can be made.
    static func base(_ version: ControlGroup.Version) -> (directory: String, top: String)? {
        let group = ControlGroup(HostKernel())
        guard group.version == version, case .directory(let own, let top) = group.memory else { return nil }
        if version == .v1 { return (own, top) }
        return getenv("BOX").map { (String(cString: $0), top) }
    }

    /// The reason why no group can be made here; `nil` if one can.
    static func obstacle(_ version: ControlGroup.Version) -> Comment? {
        guard let base = base(version) else {
            return "the memory controller is not on cgroup version \(version == .v1 ? 1 : 2) here, or this is not the test bed"
        }
        let probe = "\(base.directory)/plimsoll-test-\(getpid())-probe"
        guard mkdir(probe, 0o755) == 0 else { return "no group can be made in \(base.directory): \(String(cString: strerror(errno)))" }
        defer { rmdir(probe) }
        let limit = probe + (version == .v1 ? "/memory.limit_in_bytes" : "/memory.max")
        if let error = HostKernel().write(Array("100000000".utf8), to: limit) { return "\(limit): \(error)" }
        return nil
    }

    static let noVersion1 = obstacle(.v1)
    static let noVersion2 = obstacle(.v2)

    init(_ version: ControlGroup.Version, _ name: String, _ limits: [String: Int]) throws {
        let base = try #require(Self.base(version))
        directory = "\(base.directory)/plimsoll-test-\(getpid())-\(name)"
        mkdir(directory, 0o755)
        var template = Array("/tmp/plimsoll-membership-XXXXXX".utf8CString)
        membership = mkstemp(&template)
        unlink(template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) })
        let path = directory.dropFirst(base.top.utf8.count)
        let text = version == .v1 ? "4:memory:\(path)\n0::/\n" : "0::\(path)\n"
        _ = Glibc.write(membership, text, text.utf8.count)
        for (file, limit) in limits { set(file, limit) }
    }

    /// Writes a number into a control file of the group.
    func set(_ file: String, _ number: Int) {
        let error = host.write(Array("\(number)".utf8), to: "\(directory)/\(file)")
        #expect(error == nil, "\(directory)/\(file)")
    }

    func remove() {
        Glibc.close(membership)
        blockUntil("the end of what runs in \(directory)") { rmdir(directory) == 0 || errno != EBUSY }
    }

    /// Starts a shell inside the group that fills `mebibytes` and holds them until it is killed.
    func startHog(mebibytes: Int) -> pid_t {
        // tail keeps all of an input without line ends in memory. The input stays open, so tail keeps holding the
        // input.
        let script = "echo $$ > \(directory)/cgroup.procs; { head -c \(mebibytes << 20) /dev/zero; sleep 600; } | tail -n 1 > /dev/null"
        let words: [String] = ["/bin/sh", "-c", script]
        var arguments: [UnsafeMutablePointer<CChar>?] = words.map { (word: String) in strdup(word) } + [nil]
        defer { for argument in arguments { free(argument) } }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP))
        posix_spawnattr_setpgroup(&attributes, 0)
        defer { posix_spawnattr_destroy(&attributes) }
        var child: pid_t = 0
        #expect(posix_spawn(&child, "/bin/sh", nil, &attributes, &arguments, environ) == 0)
        return child
    }

    static func end(_ child: pid_t) {
        kill(-child, SIGKILL)
        var status: Int32 = 0
        waitpid(child, &status, 0)
    }

    // MARK: - Kernel

    func open(_ path: String, _ access: FileAccess) -> Int32 {
        // cgroup.procs would not list this process. An unreadable file proves nothing.
        if path.hasSuffix("/cgroup.procs") { return -EACCES }
        return path == "/proc/self/cgroup" ? dup(membership) : host.open(path, access)
    }

    func close(_ file: Int32) { host.close(file) }
    func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        host.read(file, from: offset, into: buffer)
    }
    func drain(_ file: Int32) -> Int { host.drain(file) }
    func write(_ file: Int32, _ bytes: UnsafeBufferPointer<UInt8>) -> Int { host.write(file, bytes) }
    func status(of path: String) -> FileStatus { host.status(of: path) }
    func connect(_ path: String) -> Int32 { host.connect(path) }
    func makeEvent() -> Int32 { host.makeEvent() }
    func makeWatch() -> Int32 { host.makeWatch() }
    func watchWrites(to path: String, _ watch: Int32) -> Int32 { host.watchWrites(to: path, watch) }
    func wait(for files: UnsafeMutableBufferPointer<pollfd>, nanoseconds: Int64) -> Int { host.wait(for: files, nanoseconds: nanoseconds) }
    var processID: Int32 { getpid() }
}

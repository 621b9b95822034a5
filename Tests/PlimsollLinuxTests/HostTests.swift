import Glibc
import Plimsoll
import Testing

@testable import PlimsollLinux

/// A child group of version 1's memory controller, below the one this process is in, for a child process.
///
/// The source under test stays outside, so it is told of the child's group by a kernel that answers `/proc/self/cgroup` for it.
struct ChildGroup: Kernel {
    let directory: String
    private let path: String
    private let host = HostKernel()
    private let membership: Int32

    /// Why no such group can be made here; `nil` if one can.
    static let obstacle: String? = {
        guard case .directory(let own, _) = ControlGroup(HostKernel()).memory, ControlGroup(HostKernel()).version == .v1 else {
            return "the memory controller is not on cgroup version 1 here"
        }
        let probe = "\(own)/plimsoll-test-\(getpid())-probe"
        guard mkdir(probe, 0o755) == 0 else { return "no child group can be made in \(own): \(String(cString: strerror(errno)))" }
        rmdir(probe)
        return nil
    }()

    init(_ name: String, limit: Int) throws {
        guard case .directory(let own, let top) = ControlGroup(HostKernel()).memory else { throw PressureSourceError("hidden") }
        directory = "\(own)/plimsoll-test-\(getpid())-\(name)"
        path = String(directory.dropFirst(top.utf8.count))
        mkdir(directory, 0o755)
        var template = Array("/tmp/plimsoll-membership-XXXXXX".utf8CString)
        membership = mkstemp(&template)
        unlink(template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) })
        let text = "4:memory:\(path)\n0::/\n"
        _ = Glibc.write(membership, text, text.utf8.count)
        if let error = host.write(Array("\(limit)".utf8), to: directory + "/memory.limit_in_bytes") { throw PressureSourceError("\(error)") }
    }

    func remove() {
        Glibc.close(membership)
        for _ in 0..<1000 where rmdir(directory) != 0 && errno == EBUSY { usleep(1000) }
    }

    func open(_ path: String, _ access: FileAccess) -> Int32 {
        // cgroup.procs would not list us; unreadable, it proves nothing.
        if path.hasSuffix("/cgroup.procs") { return -EACCES }
        return path == "/proc/self/cgroup" ? dup(membership) : host.open(path, access)
    }

    func close(_ file: Int32) { host.close(file) }
    func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int { host.read(file, from: offset, into: buffer) }
    func drain(_ file: Int32) -> Int { host.drain(file) }
    func write(_ file: Int32, _ bytes: UnsafeBufferPointer<UInt8>) -> Int { host.write(file, bytes) }
    func status(of path: String) -> FileStatus { host.status(of: path) }
    func connect(_ path: String) -> Int32 { host.connect(path) }
    func makeEvent() -> Int32 { host.makeEvent() }
    func makeWatch() -> Int32 { host.makeWatch() }
    func watchWrites(to path: String, _ watch: Int32) -> Int32 { host.watchWrites(to: path, watch) }
    func wait(for files: UnsafeMutableBufferPointer<pollfd>, nanoseconds: Int64) -> Int { host.wait(for: files, nanoseconds: nanoseconds) }
    var processID: Int32 { getpid() }

    /// Starts a shell inside the group that fills `mebibytes` and holds them until it is killed.
    func startHog(mebibytes: Int) -> pid_t {
        // tail keeps all of an input without line ends in memory; its input stays open, so it goes on holding it.
        let script = "echo $$ > \(directory)/cgroup.procs; { head -c \(mebibytes)M /dev/zero; sleep 600; } | tail -n 1 > /dev/null"
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
}

@Suite(.serialized) struct HostTests {
    @Test func `the machine this runs on can be read, and every dead signal says why`() throws {
        let source = LinuxPressureSource()
        let reading = try source.read(at: .zero)
        #expect(reading.limit != nil)
        #expect(reading.resident > .mebibytes(1))
        #expect(source.footprint().resident > .mebibytes(1))
        #expect(
            source.capabilities.signals.map(\.name) == [
                "limit", "usage", "reclaimable", "limit events", "usage thresholds", "stall", "stall trigger", "announced", "brake", "resident",
            ])
        for signal in source.capabilities.signals { #expect(!signal.detail.isEmpty, "\(signal.name)") }
    }

    @Test func `another thread's wake ends a wait on the real kernel`() throws {
        let source = LinuxPressureSource()
        _ = try source.read(at: .zero)
        for _ in 0..<100 {
            let done = Parker()
            #expect(
                PlimsollThread.start {
                    source.wake(); done.unpark()
                })
            source.wait(atMost: .seconds(600))
            done.park()
        }
    }

    @Test(.enabled(if: ChildGroup.obstacle == nil, "\(ChildGroup.obstacle ?? "")"))
    func `version 1: the limit is found, a child that crosses the margin ends the wait, and the limit is followed`() throws {
        let group = try ChildGroup("threshold", limit: 128 << 20)
        defer { group.remove() }
        let source = LinuxPressureSource(kernel: group)
        let before = try source.read(at: .zero)
        #expect(before.limit == .mebibytes(128))
        #expect(before.boundary == .maximum)
        #expect(before.available! > .mebibytes(120))
        #expect(source.rings)
        #expect(source.capabilities["usage thresholds"]?.isLive == true)

        // 80 % are 102.4 MiB; tail's buffers take a little more than what they hold.
        let hog = group.startHog(mebibytes: 106)
        defer { ChildGroup.end(hog) }
        source.wait(atMost: .seconds(60))
        let after = try source.read(at: .seconds(1))
        #expect(after.available! < .mebibytes(26), "\(after)")
        #expect(source.footprint().usage > .mebibytes(100))
        #expect(PressureAssessor().assessing(after).level >= .warning)

        _ = HostKernel().write(Array("\(512 << 20)".utf8), to: group.directory + "/memory.limit_in_bytes")
        #expect(try source.read(at: .seconds(12)).limit == .mebibytes(512))
        #expect(source.rings)
    }

    @Test(.enabled(if: ChildGroup.obstacle == nil, "\(ChildGroup.obstacle ?? "")"))
    func `K18 version 1: somebody who moves the limit ends the wait`() throws {
        let group = try ChildGroup("moved", limit: 128 << 20)
        defer { group.remove() }
        let source = LinuxPressureSource(kernel: group)
        _ = try source.read(at: .zero)
        #expect(HostKernel().write(Array("\(64 << 20)".utf8), to: group.directory + "/memory.limit_in_bytes") == nil)
        source.wait(atMost: .seconds(600))
        #expect(try source.read(at: .milliseconds(1)).limit == .mebibytes(64))
    }

    @Test(.enabled(if: ChildGroup.obstacle == nil, "\(ChildGroup.obstacle ?? "")"))
    func `T18 version 1: a group removed under us leaves the machine to be read`() throws {
        let group = try ChildGroup("removed", limit: 64 << 20)
        let source = LinuxPressureSource(kernel: group)
        #expect(try source.read(at: .zero).limit == .mebibytes(64))
        rmdir(group.directory)
        var reading = try source.read(at: .seconds(1))
        for second in 2...20 where reading.boundary != .machine { reading = try source.read(at: .seconds(second)) }
        #expect(reading.boundary == .machine)
        group.remove()
    }
}

extension PressureAssessor {
    func assessing(_ reading: PressureReading) -> PressureAssessment {
        var copy = self
        return copy.assess(reading)
    }
}

/// A thread for a test, outside the cooperative pool.
enum PlimsollThread {
    static func start(_ body: @escaping @Sendable () -> Void) -> Bool {
        final class Box: Sendable {
            let body: @Sendable () -> Void
            init(_ body: @escaping @Sendable () -> Void) { self.body = body }
        }
        var thread = pthread_t()
        let box = Unmanaged.passRetained(Box(body))
        return pthread_create(
            &thread, nil,
            {
                Unmanaged<Box>.fromOpaque($0!).takeRetainedValue().body(); return nil
            }, box.toOpaque()) == 0
    }
}

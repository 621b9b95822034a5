import Glibc
import Plimsoll
import Testing

@testable import PlimsollLinux

/// Tests of `$MEMORY_PRESSURE_WATCH` and `$MEMORY_PRESSURE_WRITE`. The fake is part of the protocol, so the FIFOs and
/// sockets are real.
@Suite struct ServiceManagerWatchTests {
    static func source(_ fixture: Fixture, watch: String, write: String? = nil) -> LinuxPressureSource {
        LinuxPressureSource(kernel: HostKernel(root: fixture.root), environment: .init(watch: watch, write: write))
    }

    @Test func `bytes written to a FIFO are one announcement, read and discarded`() throws {
        let fixture = Fixture(Machines.processFiles)
        mkfifo(fixture.root + "/fifo", 0o600)
        let source = Self.source(fixture, watch: "/fifo")
        #expect(source.capabilities["announced"]?.isLive == true)
        #expect(source.capabilities.support == .announced)
        #expect(try source.read(at: .zero).announced == nil)
        // The other side opens and closes the FIFO. A close counts neither as an announcement nor as an end.
        for second in 1...3 {
            let file = open(fixture.root + "/fifo", O_WRONLY | O_NONBLOCK | O_CLOEXEC)
            #expect(write(file, "xx", 2) == 2)
            close(file)
            source.wait(atMost: .seconds(60))
            #expect(try source.read(at: .seconds(second)).announced == .warning)
            #expect(try source.read(at: .seconds(second)).announced == nil, "taken once")
        }
    }

    @Test func `the source connects to a socket, sends the given bytes and receives announcements`() throws {
        let fixture = Fixture(Machines.processFiles)
        let listener = Self.listen(fixture.root + "/socket")
        defer { close(listener) }
        let source = Self.source(fixture, watch: "/socket", write: "aGVsbG8=")
        let peer = accept(listener, nil, nil)
        var hello = [UInt8](repeating: 0, count: 16)
        #expect(recv(peer, &hello, 16, 0) == 5)
        #expect(hello.starts(with: Array("hello".utf8)))
        #expect(try source.read(at: .zero).announced == nil)
        #expect(send(peer, "z", 1, 0) == 1)
        source.wait(atMost: .seconds(60))
        #expect(try source.read(at: .seconds(1)).announced == .warning)

        // The other side closes: the source reports the end once, and connects again after a pause.
        Self.hangUp(peer)
        source.wait(atMost: .seconds(60))
        #expect(try source.read(at: .seconds(10)).announced == nil)
        #expect(source.capabilities["announced"]?.isLive == true)
        let again = accept(listener, nil, nil)
        #expect(recv(again, &hello, 16, 0) == 5)
        close(again)
    }

    @Test func `a socket without a peer does not end the process`() throws {
        let fixture = Fixture(Machines.processFiles)
        let listener = Self.listen(fixture.root + "/socket")
        Self.hangUp(listener)
        let source = Self.source(fixture, watch: "/socket", write: "aGVsbG8=")
        #expect(source.capabilities["announced"]?.detail.contains("Connection refused") == true)
        _ = try source.read(at: .zero)
    }

    @Test(arguments: ["/dev/null", ""]) func `/dev/null and an empty value disable announcements and triggers, not polling`(path: String) throws {
        let driver = SourceDriver(Machines.version2(), environment: .init(watch: path, write: "c29tZSAyMDAwMDAgMjAwMDAwMAA="))
        let capabilities = driver.source.capabilities
        #expect(capabilities["announced"]?.detail.contains("disabled") == true)
        #expect(capabilities["stall trigger"]?.detail.contains("disabled") == true)
        #expect(driver.kernel.ask { $0.written.isEmpty })
        let reading = try driver.read()
        #expect(reading.limit == .mebibytes(512))
        #expect(reading.stall != nil)
    }

    @Test(arguments: [
        ("relative/path", nil, "not an absolute path"),
        ("/sys/fs/cgroup/../x", nil, ". or .."),
        ("/" + String(repeating: "x", count: 4096), nil, "longer than a path may be"),
        ("/sys/fs/cgroup/box", nil, "is a directory"),
        ("/not/there", nil, "No such file or directory"),
        ("/etc/plain", nil, "neither the cgroup nor the proc file system"),
        ("/dev/zero", nil, "neither a pressure file nor a FIFO nor a socket"),
        ("/sys/fs/cgroup/other/memory.pressure", nil, "another group than ours"),
        ("/sys/fs/cgroup/box/main/memory.pressure", "!!!", "not base64"),
        ("/sys/fs/cgroup/box/main/memory.pressure", "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWZnaGlqa2xtbm9w", "bytes long"),
    ]) func `each refusal gives a reason, and the library's own detection goes on`(watch: String, write: String?, reason: String) throws {
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { state in
            state.kinds["/etc/plain"] = .regular(.other)
            state.kinds["/dev/zero"] = .other
            state.files["/sys/fs/cgroup/other/memory.pressure"] = Machines.stall
        }
        let driver = SourceDriver(kernel, environment: .init(watch: watch, write: write))
        let signal = try #require(driver.source.capabilities["announced"])
        #expect(!signal.isLive)
        #expect(signal.detail.contains(reason), "\(signal.detail)")
        #expect(try driver.read().limit == .mebibytes(512))
        #expect(driver.source.capabilities["stall trigger"]?.isLive == true)
    }

    @Test(arguments: [
        ("/s/app.service/memory.pressure", "/s/app.service", true),
        ("/s/app.service/memory.pressure", "/s/app.service/worker", true),
        ("/s/user@1.service/memory.pressure", "/s/user@1.service/app.slice/mine.service", false),
        ("/s/user@1.service/memory.pressure", "/s/user@1.service/session.scope/sub", false),
        ("/s/app/memory.pressure", "/s/app2", false),
    ]) func `variables inherited from an outer unit are refused, and variables of a divided unit are not`(watch: String, own: String, isOurs: Bool) {
        let kernel = ScriptedKernel([watch: Machines.stall])
        let plan = ServiceManagerWatch(watch: watch, write: nil, unified: .directory(own, top: "/s"), kernel)
        if case .watch = plan { #expect(isOurs) } else { #expect(!isOurs, "\(plan)") }
    }

    @Test func `the own group's pressure file is ours in any mount of the hierarchy, and another group's is not`() {
        var files = Machines.version2()
        files["/proc/self/mountinfo"]? += "31 23 0:26 / /run/agent/cgroup rw,relatime - cgroup2 none rw\n"
        files.merge(Machines.group("/run/agent/cgroup/box/main", max: "536870912")) { $1 }
        files["/sys/fs/cgroup/other/memory.pressure"] = Machines.stall
        let own = SourceDriver(files, environment: .init(watch: Machines.main + "/memory.pressure"))
        let announced = own.source.capabilities["announced"], limit = own.source.capabilities["limit"]
        #expect(limit?.detail.contains("/run/agent/cgroup/box/main") == true, "the latest mount")
        #expect(announced?.isLive == true && announced?.detail == Machines.main + "/memory.pressure", "\(announced?.detail ?? "")")
        let foreign = SourceDriver(files, environment: .init(watch: "/sys/fs/cgroup/other/memory.pressure"))
        #expect(foreign.source.capabilities["announced"]?.detail.contains("another group than ours") == true)
    }

    @Test func `K5 a pressure file's event is an announcement only if stall has grown, and the given bytes are written unchanged`() throws {
        let path = Machines.main + "/memory.pressure"
        let driver = SourceDriver(Machines.version2(), environment: .init(watch: path, write: "c29tZSAyMDAwMDAgMjAwMDAwMAA="))
        #expect(driver.kernel.ask { $0.written.map(\.text) } == ["some 200000 2000000\0"])
        #expect(driver.source.capabilities["stall trigger"]?.isLive == false, "one trigger is enough")

        func ring(total: Int) throws -> PressureLevel? {
            driver.set(path, "some avg10=0.00 avg60=0.00 avg300=0.00 total=\(total)\n")
            driver.kernel.edit { $0.conditions[path] = Int16(POLLPRI) }
            _ = try driver.read(after: .seconds(2))
            driver.wait()
            driver.kernel.edit { $0.conditions[path] = nil }
            return try driver.read().announced
        }
        #expect(try ring(total: 100_000) == nil)
        #expect(try ring(total: 299_999) == nil)
        #expect(try ring(total: 499_999) == .warning)
        #expect(try ring(total: 500_000) == nil)
    }

    @Test func `K9 a pressure file that reports an error announces nothing, and is opened again with the given bytes after a pause`() throws {
        let path = Machines.main + "/memory.pressure"
        let driver = SourceDriver(Machines.version2(), environment: .init(watch: path, write: "c29tZSAyMDAwMDAgMjAwMDAwMAA="))
        func requests() -> [String] { driver.kernel.ask { $0.written.map(\.text) } }
        _ = try driver.read()
        // The trigger's group was removed and made again: the file says nothing else from now on.
        driver.set(path, "some avg10=0.00 avg60=0.00 avg300=0.00 total=900000\n")
        driver.kernel.edit { $0.conditions[path] = Int16(POLLERR | POLLPRI) }
        #expect(driver.wait() == .zero)
        #expect(try driver.read(after: .milliseconds(500)).announced == nil && requests().count == 1)
        driver.kernel.edit { $0.conditions[path] = nil }
        for _ in 0..<3 { #expect(try driver.read(after: .seconds(1)).announced == nil) }
        #expect(requests() == ["some 200000 2000000\0", "some 200000 2000000\0"])
        #expect(driver.source.capabilities["announced"]?.isLive == true)
    }

    @Test func `a FIFO that appears later is found`() throws {
        let driver = SourceDriver(Machines.version2(), environment: .init(watch: "/run/later"))
        #expect(driver.source.capabilities["announced"]?.isLive == false)
        driver.kernel.edit { $0.kinds["/run/later"] = .fifo }
        for _ in 0..<5 { _ = try driver.read(after: .seconds(1)) }
        #expect(driver.source.capabilities["announced"]?.isLive == true)
    }

    /// Closes a socket, although a process that another test is just starting may have a copy.
    private static func hangUp(_ file: Int32) {
        shutdown(file, Int32(SHUT_RDWR))
        close(file)
    }

    private static func listen(_ path: String) -> Int32 {
        let file = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { bytes in for (index, byte) in path.utf8.enumerated() { bytes[index] = byte } }
        let bound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(file, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
        }
        #expect(bound == 0)
        #expect(Glibc.listen(file, 4) == 0)
        return file
    }
}

import CPlimsollSupervisor
import Glibc
import PlimsollLinux
import PlimsollSupervisor
import PlimsollTesting
import TestSupport
import Testing

@Suite(.serialized) struct NotifySocketTests {
    private let directory = Fixture.Directory()

    private func parse(_ text: String) -> NotifyMessage { NotifyMessage(parsing: text.utf8) }

    // MARK: The parser

    @Test func `a service's own notices are parsed`() {
        let message = parse(
            "READY=1\nSTATUS=Serving 3 = 3\nMAINPID=4711\nWATCHDOG=1\nWATCHDOG_USEC=20000000\nEXTEND_TIMEOUT_USEC=5000\nERRNO=2\nX_OURS=1\n")
        var expected = NotifyMessage()
        (expected.isReady, expected.isAlive, expected.status, expected.mainProcess, expected.errorNumber) = (true, true, "Serving 3 = 3", 4711, 2)
        (expected.watchdogInterval, expected.timeoutExtension) = (.seconds(20), .milliseconds(5))
        #expect(message == expected)
        #expect(parse("WATCHDOG_USEC=0").watchdogInterval == .zero, "as in systemd: no watchdog")
        #expect(parse("STOPPING=1").isStopping && parse("RELOADING=1\nMONOTONIC_USEC=5").isReloading && parse("WATCHDOG=trigger").triggersWatchdog)
        let store = parse("FDSTORE=1\nFDNAME=listener")
        #expect(store.storesDescriptors && store.descriptorName == "listener" && parse("FDSTOREREMOVE=1\nFDNAME=x").removesDescriptors)
    }

    @Test(arguments: [
        "MAINPID=0", "MAINPID=-5", "MAINPID=4194305", "MAINPID= 7", "MAINPID=7x", "MAINPID=", "WATCHDOG_USEC=-1",
        "WATCHDOG_USEC=99999999999999999999",
        "ERRNO=4096",
        "EXTEND_TIMEOUT_USEC=+1", "READY=0", "READY=", "FDSTORE=yes", "FDNAME=a:b", "FDNAME=", "READY", "=1", "MAINPID=٣",
    ])
    func `only the invalid line of a message is refused`(line: String) {
        let message = parse("STATUS=ok\n\(line)\nSTOPPING=1")
        #expect(message.problems.count == 1 && message.status == "ok" && message.isStopping, "\(message.problems)")
        #expect(message.mainProcess == nil && message.descriptorName == nil && !message.isReady && !message.storesDescriptors)
    }

    @Test func `display text reaches logs without line ends or escapes, and with a bounded length`() {
        #expect(parse("STATUS=a\u{1b}[31mb\tc").status == "a [31mb c")
        #expect(parse("STATUS=" + String(repeating: "x", count: 4000)).status?.count == 1024)
        let garbage = NotifyMessage(parsing: [0x52, 0xff, 0x3d, 0x31, 0x0a, 0x1b, 0x5b])
        #expect(garbage.problems == ["\"R?=1\" is not UTF-8", "\"?[\" is not KEY=VALUE"] && garbage.isEmpty)
        #expect(parse(String(repeating: "x\n", count: 2000)).problems.count == 16)
    }

    @Test func `no bytes make the parser trap`() {
        let seed = usualSeed(31)
        var random = SeededGenerator(seed: seed)
        let keys = ["READY", "MAINPID", "STATUS", "FDNAME", "WATCHDOG_USEC", "ERRNO", "FDSTORE", "Q"]
        var taken = 0
        for _ in 0..<20_000 {
            var text = Array(
                "\(keys.randomElement(using: &random)!)=\(UInt64.random(in: 0...5_000_000, using: &random) >> UInt64.random(in: 0...22, using: &random))"
                    .utf8)
            for _ in 0..<Int.random(in: 0...2, using: &random) {
                text[Int.random(in: 0..<text.count, using: &random)] = UInt8.random(in: .min ... .max, using: &random)
            }
            if !NotifyMessage(parsing: text).isEmpty { taken += 1 }
        }
        #expect(taken > 1000, "seed \(seed): the property was exercised too seldom")
    }

    // MARK: The socket

    private func send(_ text: String, to path: String, _ descriptors: [Int32] = []) -> Int32 {
        ServiceManager.send(Array(text.utf8), to: path, descriptors)
    }

    @Test func `a message is received with the sender's identity from the kernel`() throws {
        let socket = try NotifySocket(directory: directory.path)
        #expect(socket.environment == ["NOTIFY_SOCKET": directory.path + "/notify"])
        #expect(socket.receive() == nil)
        #expect(send("READY=1\nMAINPID=1", to: socket.path) == 0)
        #expect(Fixture.isReadable(socket.file))
        let notice = try #require(socket.receive())
        #expect(notice.sender.process == getpid() && notice.sender.user == getuid() && notice.message.isReady && notice.descriptors.isEmpty)
        #expect(socket.receive() == nil && socket.counters.taken == 1)
    }

    @Test func `stored descriptors are kept, and all others are closed`() async throws {
        let socket = try NotifySocket(directory: directory.path)
        var ends: [Int32] = [0, 0]
        #expect(pipe(&ends) == 0)
        func open() -> Int { Fixture.descriptors(like: ends[0]) }
        #expect(open() == 2)
        #expect(send("FDSTORE=1\nFDNAME=pipe", to: socket.path, [ends[0], ends[1]]) == 0)
        do {
            let notice = try #require(socket.receive())
            #expect(notice.descriptors.count == 2 && open() == 4)
            #expect(notice.descriptors.allSatisfy { fcntl($0.file, F_GETFD) & FD_CLOEXEC != 0 })
            #expect(write(notice.descriptors[1].file, "x", 1) == 1 && Fixture.isReadable(ends[0]))
        }
        #expect(await until("the kept are closed") { open() == 2 })
        for text in ["READY=1", "BARRIER=1", "garbage", "FDSTORE=0", String(repeating: "FDSTORE=1\n", count: 500)] {
            #expect(send(text, to: socket.path, [ends[0], ends[1]]) == 0)
            _ = socket.receive()
            #expect(await until("\(text.prefix(20)): the descriptors are closed") { open() == 2 })
        }
        #expect(socket.counters.closedDescriptors == 10)
        // More descriptors than a message may carry: the supervisor drops the message.
        #expect(send("FDSTORE=1", to: socket.path, Array(repeating: ends[0], count: 253)) == 0)
        #expect(socket.receive() == nil && socket.counters.oversize == 2)
        #expect(await until("all are closed") { open() == 2 })
        close(ends[0])
        close(ends[1])
    }

    @Test func `messages that are too long or garbage are counted, and delay no sender`() throws {
        let socket = try NotifySocket(directory: directory.path)
        #expect(send("STATUS=" + String(repeating: "x", count: 4096), to: socket.path) == 0)
        #expect(send("", to: socket.path) == 0)
        #expect(send("what\nis\nthis", to: socket.path) == 0)
        #expect(send("BARRIER=1", to: socket.path) == 0)
        #expect(send("MAINPID=x\nSTOPPING=1", to: socket.path) == 0)
        let notice = try #require(socket.receive())
        #expect(notice.message.isStopping && notice.message.problems == ["\"MAINPID=x\" is not a number from 1 to 4194304"])
        let counters = socket.counters
        #expect(counters.taken == 1 && counters.oversize == 1 && counters.garbage == 2 && counters.refusedLines == 4, "\(counters)")
    }

    @Test(arguments: ["notify", "supervisor", "web.pressure"])
    func `a dead process's socket is replaced, and a live process's socket is refused`(name: String) throws {
        func bind() throws -> AnyObject {
            switch name {
            case "notify": try NotifySocket(directory: directory.path)
            case "supervisor": try ChannelServer(directory: directory.path) { _, _ in "web" }
            default: try PressureSocket(directory: directory.path, unit: "web")
            }
        }
        let path = "\(directory.path)/\(name)"
        // The process is gone: the name exists, without a socket behind the name.
        let dead = Fixture.bound(path, name == "notify" ? SOCK_DGRAM : SOCK_STREAM)
        #expect(dead >= 0 && close(dead) == 0 && access(path, F_OK) == 0)
        // A child that another test is starting has a copy until the child executes its program.
        blockUntil("the socket has no owner") {
            let file = Fixture.connected(path, name == "notify" ? SOCK_DGRAM : SOCK_STREAM)
            if file >= 0 { close(file) }
            return file == -ECONNREFUSED
        }
        var first: AnyObject? = try bind()
        let refusal = #expect(throws: ChannelError.self) { try bind() }
        #expect(
            refusal?.description == "listening at \(path): Address already in use; another process listens there: "
                + "stop that process, or choose another directory")
        // The refused socket has removed nothing.
        #expect(access(path, F_OK) == 0)
        if name != "notify" { #expect(close(Fixture.connect(path)) == 0) } else { #expect(send("READY=1", to: path) == 0) }
        // Another socket has taken the name meanwhile: the first one leaves that socket in place.
        unlink(path)
        let second = try bind()
        #expect(first != nil)
        first = nil
        #expect(access(path, F_OK) == 0)
        withExtendedLifetime(second) {}
    }

    @Test func `a path that is no socket or cannot hold a socket gives an error with the remedy`() throws {
        let error = #expect(throws: ChannelError.self) { try NotifySocket(directory: "/nonexistent") }
        #expect(error?.description == "listening at /nonexistent/notify: No such file or directory; the directory must exist")
        let long = #expect(throws: ChannelError.self) { try NotifySocket(directory: "/" + String(repeating: "x", count: 110)) }
        #expect(long?.description.contains("at most 107 bytes") == true)
        let file = Fixture.Directory()
        let foreign = open(file.path + "/notify", O_CREAT | O_WRONLY, 0o600)
        #expect(foreign >= 0 && close(foreign) == 0)
        #expect(throws: ChannelError.self) { try NotifySocket(directory: file.path) }
        // The file is still there.
        #expect(unlink(file.path + "/notify") == 0)
    }
}

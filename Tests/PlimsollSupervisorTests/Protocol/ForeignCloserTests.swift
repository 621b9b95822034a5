import CPlimsollSupervisor
import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Descriptors whose close another process can delay at will.
@Suite(.serialized) struct ForeignCloserTests {
    private let directory = Fixture.Directory()

    /// Sends `count` descriptors of a lingering socket by messages to `path`, and closes this process's copies.
    private func sendLingering(_ count: Int, to path: String, _ text: String = "READY=1") throws -> LingeringSockets {
        let sockets = try #require(LingeringSockets(count))
        // The kernel passes at most 253 at once.
        for start in stride(from: 0, to: count, by: 253) {
            #expect(ServiceManager.send(Array(text.utf8), to: path, Array(sockets.files[start..<min(count, start + 253)])) == 0)
        }
        sockets.letGo()
        return sockets
    }

    private var nothingWaits: Bool { ForeignCloser.shared.waiting == 0 }

    @Test(arguments: [1, 17, 253, 254])
    func `a message with lingering sockets is taken or dropped without waiting for their close`(count: Int) async throws {
        let socket = try NotifySocket(directory: directory.path)
        for text in ["READY=1", "FDSTORE=1", "BARRIER=1", String(repeating: "X=1\n", count: 2000)] {
            let sockets = try sendLingering(count, to: socket.path, text)
            #expect(await ends("receiving") { while socket.receive() != nil {} })
            #expect(await until("the descriptors are closed") { nothingWaits })
            withExtendedLifetime(sockets) {}
        }
    }

    @Test func `a closed socket with unread lingering sockets does not hang the thread`() async throws {
        var socket: NotifySocket? = try NotifySocket(directory: directory.path)
        let sockets = try sendLingering(17, to: directory.path + "/notify")
        #expect(await ends("letting go") { socket = nil })
        #expect(socket == nil)
        #expect(await until("the descriptors are closed") { nothingWaits })
        withExtendedLifetime(sockets) {}
    }

    @Test(arguments: [1, 17, 253], [true, false])
    func `lingering sockets over a link hang neither an accepted nor a refused connection`(count: Int, isKnown: Bool) async throws {
        let server = try ChannelServer(directory: directory.path) { _, _ in isKnown ? "web" : nil }
        let file = Fixture.connect(server.path), sockets = try #require(LingeringSockets(count))
        defer { close(file) }
        #expect(sendOverStream("1 hello v=1\n", sockets.files, over: file))
        sockets.letGo()
        #expect(await ends("serving") { while Fixture.isReadable(server.file, within: 100) { _ = server.turn(at: .zero) } })
        #expect(server.connectionCount == 0 && server.counters.refused == 1)
        #expect(Fixture.received(file)?.contains("refused because=\(isKnown ? "malformed" : "unknown-process")") == true)
        #expect(await until("the descriptors are closed") { nothingWaits })
        withExtendedLifetime(sockets) {}
    }

    @Test(arguments: [true, false]) func `lingering sockets over a pressure connection hang no thread`(isKnown: Bool) async throws {
        let socket = try PressureSocket(directory: directory.path, unit: "web") { _, _ in isKnown }
        let file = Fixture.connect(socket.path), sockets = try #require(LingeringSockets(253))
        defer { close(file) }
        #expect(sendOverStream("x", sockets.files, over: file))
        sockets.letGo()
        #expect(await ends("serving") { while Fixture.isReadable(socket.file, within: 100) { socket.turn() } })
        #expect(socket.connectionCount == 0 && socket.counters.refused + socket.counters.closed == 1)
        #expect(await until("the descriptors are closed") { nothingWaits })
        withExtendedLifetime(sockets) {}
    }

    @Test func `closing a kept descriptor that lingers does not hang the caller`() async throws {
        let sockets = try #require(LingeringSockets(1))
        var kept: KeptDescriptor? = KeptDescriptor(dup(sockets.files[0]), of: "web")
        sockets.letGo()
        #expect(await ends("letting go") { kept = nil })
        #expect(kept == nil)
        withExtendedLifetime(sockets) {}
    }

    // MARK: Bounds

    /// Close calls that hang until the gate opens.
    private final class Gate: Sendable {
        private let isOpen = Atomic(false)
        let closed = Mutex<[Int32]>([])
        func close(_ file: Int32) {
            // A negative number: a close that hangs. Relaxed: the gate publishes no data.
            blockUntil("the gate") { file >= 0 || isOpen.load(ordering: .relaxed) }
            closed.withLock { $0.append(file) }
        }
        func open() { isOpen.store(true, ordering: .relaxed) }
    }

    @Test func `hanging descriptors of one owner delay no other owner, and are bounded`() async throws {
        // The bounds follow the limit of open files, which the first supervisor of this process raises.
        _ = plimsoll_raise_file_limit()
        let gate = Gate(), closer = ForeignCloser { file, _ in gate.close(file) }
        defer { gate.open() }
        let many = 40
        for number in 0..<ForeignCloser.mostThreads - 1 { closer.close((0..<many).map { -1 - Int32($0) }, of: "bad \(number)") }
        for file in Int32(1)...100 { closer.close(CollectionOfOne(file), of: "good \(file % 7)") }
        #expect(await until("others' descriptors are closed") { gate.closed.withLock { $0.count } == 100 })
        #expect(closer.threads <= ForeignCloser.mostThreads)
        #expect(!closer.isFull("bad 0") && !closer.isFull("good 1"))
        closer.close((0..<ForeignCloser.mostWaiting).map { -1000 - Int32($0) }, of: "bad 0")
        #expect(closer.isFull("bad 0") && !closer.isFull("bad 1") && !closer.isFull("good 1"))
        gate.open()
        #expect(await until("all are closed") { closer.waiting == 0 })
        #expect(gate.closed.withLock { $0.count } == 100 + many * (ForeignCloser.mostThreads - 1) + ForeignCloser.mostWaiting)
        // One thread stays.
        #expect(await until("the threads have ended") { closer.threads == 1 })
        closer.close([7, 8], of: "")
        #expect(await until("they are closed") { closer.waiting == 0 })
    }
}

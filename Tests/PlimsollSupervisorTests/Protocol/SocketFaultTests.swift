import CSystemCallFaults
import Glibc
import Plimsoll
import PlimsollLinux
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// The supervisor's sockets, with calls that fail.
@Suite(.serialized, .needs(faults_work(), "a sanitizer has these calls for itself")) struct SocketFaultTests {
    private let directory = Fixture.Directory()

    /// The supervisor's sockets, and the messages received there.
    private final class Sockets {
        var notices: NotifySocket?
        var channel: ChannelServer?
        var pressure: PressureSocket?
        var ready = 0
        var messages: [ChildMessage] = []
        var levels = 0
    }

    private func open(_ sockets: Sockets) throws {
        sockets.notices = try NotifySocket(directory: directory.path, unit: "web", access: .user(geteuid())) { _ in "web" }
        sockets.channel = try ChannelServer(directory: directory.path) { _, _ in "web" }
        try sockets.channel?.listen(for: "web", .user(geteuid()))
        sockets.pressure = try PressureSocket(directory: directory.path, unit: "web")
    }

    /// Sends messages of three services, by calls that do not fail here. Returns the descriptors.
    private func send(_ number: Int) -> [Int32] {
        let link = Fixture.connect("\(directory.path)/web.link"), listener = Fixture.connect("\(directory.path)/web.pressure")
        let notice = Fixture.connected("\(directory.path)/web.notify", SOCK_DGRAM)
        let hello = "1 hello v=1\n2 tasks n=\(number)\n", ready = "READY=1"
        _ = write(link, hello, hello.utf8.count)
        _ = write(notice, ready, ready.utf8.count)
        _ = write(listener, "x", 1)
        return [link, listener, notice].filter { $0 >= 0 }
    }

    private func receive(_ sockets: Sockets, at now: Duration) {
        for _ in 0..<8 {
            if case .notice(let notice) = sockets.notices?.receiveOne(), notice.message.isReady { sockets.ready += 1 }
            for event in sockets.channel?.turn(at: now) ?? [] {
                if case .message(let peer, let message, _) = event {
                    sockets.messages.append(message)
                    _ = sockets.channel?.send(.level(.warning), to: peer.id)
                }
            }
            sockets.pressure?.turn()
            sockets.levels += sockets.pressure?.announce(.warning) ?? 0
        }
    }

    /// EINTR is no failure, and 0 means a short read. Any other failure may affect the failed operation, but no other
    /// operation, and only for a short time.
    @Test(arguments: [
        (EINTR, false), (0, false), (0, true), (EMFILE, false), (ENOMEM, false), (EMFILE, true), (ENOMEM, true), (EACCES, true), (ENOBUFS, true),
    ])
    func `any failing call gives an error with the object, and all clients are served afterwards`(number: Int32, isSticky: Bool) throws {
        var failures = 0
        for nth in 1...300 {
            let sockets = Sockets()
            var problem: (any Error)?
            socket_faults_begin(nth, number, isSticky)
            do {
                try open(sockets)
                let files = send(nth)
                receive(sockets, at: .seconds(1))
                for file in files { close(file) }
            } catch { problem = error }
            let wasReached = socket_faults_end()
            if let problem {
                failures += 1
                #expect(problem is ChannelError && "\(problem)".contains(directory.path), "call \(nth): \(problem)")
            }
            if number == EINTR || number == 0 && !isSticky || !wasReached {
                #expect(problem == nil, "call \(nth): \(String(describing: problem))")
                // A datagram that was read short is dropped as a whole.
                #expect(sockets.messages == [.tasks(nth, until: nil)] && sockets.levels > 0 && sockets.ready == 1 || number == 0, "call \(nth)")
            }
            // After the failure, all sockets can be made and served again.
            (sockets.notices, sockets.channel, sockets.pressure) = (nil, nil, nil)
            let after = Sockets()
            try open(after)
            let files = send(nth)
            receive(after, at: .seconds(1))
            #expect(after.messages == [.tasks(nth, until: nil)] && after.ready == 1 && after.levels > 0, "call \(nth)")
            for file in files { close(file) }
            guard wasReached else {
                #expect(number == EINTR || number == 0 || failures > 8, "hardly any call failed")
                return
            }
        }
        Issue.record("still failing after 300 calls")
    }

    @Test(arguments: [EMFILE, ENFILE, ENOMEM])
    func `a listener without free descriptors pauses instead of spinning`(number: Int32) throws {
        let server = try ChannelServer(directory: directory.path) { _, _ in "web" }
        let link = Fixture.connect(server.path)
        defer { close(link) }
        #expect(Fixture.isReadable(server.file))
        // The first call is the wait, the second the accept.
        socket_faults_begin(2, number, true)
        _ = server.turn(at: .seconds(1))
        #expect(socket_faults_end() && server.connectionCount == 0)
        let next = try #require(server.nextTurn)
        // The failing calls could not take the listener out of the wait. A turn with working calls does.
        _ = server.turn(at: next)
        #expect(server.connectionCount == 1 && server.nextTurn == nil)
    }
}

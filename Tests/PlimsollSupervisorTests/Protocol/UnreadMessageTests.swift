import Glibc
import PlimsollLinux
import Testing

@testable import PlimsollSupervisor

@Suite struct UnreadMessageTests {
    private let directory = Fixture.Directory()

    @Test func `C43 K33 the server knows of bytes that were sent and not read yet`() throws {
        let server = try ChannelServer(directory: directory.path) { _, _ in "web" }
        let file = Fixture.connect(server.path)
        defer { close(file) }
        Fixture.send(file, "1 hello v=1\n2 saved is=yes\n".utf8)
        var peer: ChannelServer.Peer?
        func turn(at now: Duration = .zero) { for event in server.turn(at: now) { if case .opened(let opened) = event { peer = opened } } }
        while peer == nil { turn() }
        let id = try #require(peer?.id)
        #expect(!server.hasUnread(id) && !server.hasUnread(99))
        Fixture.send(file, "3 saved is=no\n".utf8)
        #expect(server.hasUnread(id))
        turn()
        #expect(!server.hasUnread(id))
        // The server pauses a client above the rate: later messages of the client stay unread.
        for number in 4..<300 { Fixture.send(file, "\(number) locks held=no\n".utf8) }
        for _ in 0..<5 { turn() }
        #expect(server.counters.rests == 1 && server.hasUnread(id))
        for _ in 0..<5 { turn(at: .seconds(10)) }
        #expect(!server.hasUnread(id))
    }
}

import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollSupervisor
import PlimsollTesting
import TestSupport
import Testing

@Suite struct ChannelServerTests {
    private let directory = Fixture.Directory()

    private func server(unitOf: @escaping (Int32, UInt32) -> String? = { _, _ in "web" }) throws -> ChannelServer {
        try ChannelServer(directory: directory.path, unitOf: unitOf)
    }

    /// Returns a connection that has sent `lines`.
    private func client(_ server: ChannelServer, _ lines: String) -> Int32 {
        let file = Fixture.connect(server.path)
        Fixture.send(file, lines.utf8)
        return file
    }

    /// Returns all events until the server has nothing left to do.
    private func drain(_ server: ChannelServer, at now: Duration = .zero) -> [ChannelServer.Event] {
        var events: [ChannelServer.Event] = []
        while Fixture.isReadable(server.file, within: 0) { events += server.turn(at: now) }
        return events
    }

    @Test func `a service's messages carry the sender's identity from the kernel`() throws {
        let server = try server { process, user in process == getpid() && user == getuid() ? "web" : nil }
        let file = client(server, "1 hello v=1\n2 state is=background\n3 locks held=yes\n4 dance\n5 sav")
        defer { close(file) }
        var events = drain(server)
        guard case .opened(let peer) = events.first else { return #expect(Bool(false), "\(events)") }
        #expect(peer.process == getpid() && peer.user == getuid() && peer.unit == "web")
        #expect(events == [.opened(peer), .message(peer, .state(.background), sequence: 2), .message(peer, .locks(true), sequence: 3)])
        Fixture.send(file, "ed is=yes\n6 bye\n".utf8)
        events = drain(server)
        #expect(events == [.message(peer, .saved(true), sequence: 5), .closed(peer, .left)])
        #expect(server.connectionCount == 0 && server.counters.lines == 6 && server.counters.unknown == 1 && Fixture.received(file) == nil)
    }

    @Test func `C77 messages go to one service, numbered`() throws {
        let server = try server()
        let (one, other) = (client(server, "1 hello v=1\n"), client(server, "1 hello v=1\n"))
        defer {
            close(one)
            close(other)
        }
        let peers = drain(server).compactMap { event in if case .opened(let peer) = event { peer } else { nil } }
        #expect(peers.count == 2 && server.send(.level(.warning), to: peers[0].id) && server.send(.release(.mebibytes(1)), to: peers[0].id))
        #expect(!server.send(.resume, to: 99))
        let received = [Fixture.received(one), Fixture.received(other)]
        #expect(Set(received) == ["1 level is=warning\n2 release bytes=1048576\n", ""])
    }

    @Test(arguments: [
        ("1 state is=background\n", SupervisorMessage.Refusal.noHello), ("1 hello v=2\n", .version), ("2 hello v=1\n", .sequence),
        ("1 hello v=1\n3 bye\n", .sequence),
        ("1 hello v=1\n2 hello v=1\n", .malformed), ("garbage\n", .malformed), ("\n", .malformed), ("1 hello v=1\n2 saved is=maybe\n", .malformed),
        (String(repeating: "x", count: 5000), .malformed),
    ])
    func `a client that breaks the rules gets the reason and is closed`(lines: String, reason: SupervisorMessage.Refusal) throws {
        let server = try server()
        let file = client(server, lines)
        defer { close(file) }
        let events = drain(server)
        #expect(Fixture.received(file) == "1 refused because=\(reason.rawValue)\n" && server.connectionCount == 0 && server.counters.refused == 1)
        // The server reports no event of a client that has never said hello.
        let isKnown = lines.hasPrefix("1 hello v=1\n")
        #expect(events.count == (isKnown ? 2 : 0))
    }

    @Test func `processes without a unit, and connections beyond a unit's bound, are refused`() throws {
        let server = try server { _, _ in nil }
        let stranger = client(server, "1 hello v=1\n")
        #expect(drain(server).isEmpty && Fixture.received(stranger) == "1 refused because=unknown-process\n" && server.counters.accepted == 0)
        close(stranger)

        let other = Fixture.Directory()
        let full = try ChannelServer(directory: other.path) { _, _ in "web" }
        var files = (0..<10).map { _ in client(full, "1 hello v=1\n") }
        #expect(drain(full).count == 8 && full.connectionCount == 8 && full.counters.refused == 2)
        #expect(files[8...].allSatisfy { Fixture.received($0) == "1 refused because=too-many\n" })
        Fixture.hangUp(files.removeFirst())
        #expect(drain(full).count == 1)
        files.append(client(full, "1 hello v=1\n"))
        #expect(drain(full).count == 1 && full.connectionCount == 8)
        for file in files { close(file) }
    }

    @Test func `a client above the rate is paused, and other clients are read`() throws {
        let server = try server()
        let flood = client(server, "1 hello v=1\n"), calm = client(server, "1 hello v=1\n")
        defer {
            close(flood)
            close(calm)
        }
        #expect(drain(server).count == 2)
        Fixture.send(flood, (2...1000).map { "\($0) tasks n=\($0)\n" }.joined().utf8)
        #expect(drain(server).count == 199 && server.counters.rests == 1 && server.nextTurn == .seconds(1))
        Fixture.send(calm, "2 saved is=yes\n".utf8)
        #expect(drain(server).count == 1)
        // The server does not spin meanwhile, and no message is lost.
        #expect(!Fixture.isReadable(server.file, within: 0))
        var (messages, now) = (199, Duration.zero)
        while let next = server.nextTurn {
            now = next
            for event in server.turn(at: now) + drain(server, at: now) { if case .message = event { messages += 1 } }
        }
        #expect(messages == 999 && now >= .seconds(15), "\(messages) in \(now)")
    }

    @Test func `a paused connection that ends is closed`() throws {
        let server = try server()
        let flood = client(server, "1 hello v=1\n" + (2...300).map { "\($0) tasks n=\($0)\n" }.joined())
        #expect(drain(server).count == 200 && server.nextTurn != nil)
        Fixture.hangUp(flood)
        guard case .closed(_, .gone) = drain(server).last else { return #expect(Bool(false), "not closed") }
        #expect(server.connectionCount == 0 && server.nextTurn == nil && !Fixture.isReadable(server.file, within: 0))
    }

    @Test func `T29 the server does not wait for a client that does not read, and the client reads whole lines afterwards`() throws {
        let server = try server()
        let file = client(server, "1 hello v=1\n")
        defer { close(file) }
        guard case .opened(let peer) = drain(server).first else { return #expect(Bool(false), "not opened") }
        var sent = 0
        while server.send(.checkpoint, to: peer.id) {
            sent += 1
            try #require(sent < 1_000_000)
        }
        #expect(sent > 10 && server.counters.unsent == 1)
        var text = ""
        while let part = Fixture.received(file), !part.isEmpty {
            text += part
            _ = drain(server)
        }
        #expect(text.split(separator: "\n").count == sent && text.hasSuffix("\(sent) checkpoint\n"))
        #expect(server.send(.resume, to: peer.id) && Fixture.received(file) == "\(sent + 1) resume\n")
    }

    @Test func `a hundred thousand malformed lines affect no other client and leave no connection behind`() async throws {
        let server = try server { _, _ in "web" }
        let calm = client(server, "1 hello v=1\n")
        defer { close(calm) }
        guard case .opened(let peer) = drain(server).first else { return #expect(Bool(false), "not opened") }
        let seed = usualSeed(100_000)
        var random = SeededGenerator(seed: seed)
        var (lines, calmLine, received, opened, closed) = (0, 1, 0, 0, 0)
        while lines < 100_000 {
            // Gives other tests a turn on the cooperative pool's few threads.
            await giveWay()
            var text = Array((random.next() % 4 > 0 ? "1 hello v=1\n" : "").utf8)
            var number = 2
            for _ in 0..<1 + random.next() % 60 {
                var line =
                    Array("\(number) ".utf8)
                    + Array(["tasks n=3", "saved is=yes", "sing", "caches bytes=1 reclaimable=1"][Int(random.next() % 4)].utf8)
                if random.next() % 16 == 0 { line[Int(random.next() % UInt64(line.count))] = UInt8(truncatingIfNeeded: random.next()) }
                text += line + [10]
                number += 1
                lines += 1
            }
            let file = Fixture.connect(server.path)
            try #require(file >= 0)
            // The text arrives in chunks.
            for chunk in [text.prefix(text.count / 2), text.suffix(from: text.count / 2)] {
                Fixture.send(file, chunk)
                for event in drain(server, at: .seconds(lines)) {
                    if case .opened = event {
                        opened += 1
                    } else if case .closed = event {
                        closed += 1
                    } else if case .message(peer, _, _) = event {
                        received += 1
                    }
                }
            }
            close(file)
            calmLine += 1
            Fixture.send(calm, "\(calmLine) tasks n=\(calmLine)\n".utf8)
        }
        // A process that another test starts has a copy of the last connection, until the process executes its program.
        repeat {
            for event in drain(server, at: .seconds(lines)) {
                if case .closed = event { closed += 1 } else if case .message(peer, _, _) = event { received += 1 }
            }
        } while closed < opened && Fixture.isReadable(server.file, within: 10_000)
        #expect(
            opened > 100 && opened == closed && received == calmLine - 1,
            "seed \(seed): \(opened) opened, \(closed) closed, \(received) of \(calmLine - 1) received")
        #expect(server.connectionCount == 1 && server.counters.refused > 100, "seed \(seed)")
        #expect(server.send(.level(.critical), to: peer.id) && Fixture.received(calm) == "1 level is=critical\n")
    }
}

import Glibc
import Plimsoll
import PlimsollLifecycle
import PlimsollLinux
import PlimsollSupervisor
import Testing

@Suite struct PressureSocketTests {
    private let directory = Fixture.Directory()

    @Test func `C77 a service that only waits for a byte is warned, and a service that reads gets the level`() throws {
        let socket = try PressureSocket(directory: directory.path, unit: "web")
        #expect(socket.environment == ["MEMORY_PRESSURE_WATCH": directory.path + "/web.pressure", "MEMORY_PRESSURE_WRITE": ""])
        let client = Fixture.connect(socket.path)
        defer { close(client) }
        #expect(client >= 0 && Fixture.isReadable(socket.file))
        socket.turn()
        #expect(!Fixture.isReadable(client, within: 0) && socket.announce(.normal) == 0 && !Fixture.isReadable(client, within: 0))
        #expect(socket.announce(.warning) == 1 && Fixture.isReadable(client) && Fixture.received(client) == "warning\n")
        #expect(socket.announce(.critical) == 1 && Fixture.received(client) == "critical\n")
        // Text that a client writes for another kind of file is discarded.
        Fixture.send(client, "some 200000 2000000\0".utf8)
        #expect(Fixture.isReadable(socket.file))
        socket.turn()
        #expect(!Fixture.isReadable(socket.file, within: 0) && socket.connectionCount == 1)
    }

    @Test func `C77 Plimsoll's own source receives the warning as an announced level, also after a late connection`() throws {
        let socket = try PressureSocket(directory: directory.path, unit: "web")
        let environment = LinuxPressureSource.Environment(
            watch: socket.environment["MEMORY_PRESSURE_WATCH"], write: socket.environment["MEMORY_PRESSURE_WRITE"])
        let options = LinuxPressureSource.Options(usesTriggers: false)
        let first = LinuxPressureSource(options: options, kernel: HostKernel(), environment: environment)
        _ = try first.read(at: .zero)
        socket.turn()
        socket.announce(.critical)
        first.wait(atMost: .seconds(10))
        #expect(try first.read(at: .seconds(1)).announced == .warning && first.capabilities.signals.contains { $0.name == "announced" && $0.isLive })

        let second = LinuxPressureSource(options: options, kernel: HostKernel(), environment: environment)
        _ = try second.read(at: .zero)
        socket.turn()
        second.wait(atMost: .seconds(10))
        #expect(try second.read(at: .seconds(1)).announced == .warning)
    }

    @Test func `the socket does not wait for a client that does not read, and other clients are notified`() throws {
        let socket = try PressureSocket(directory: directory.path, unit: "web")
        let (deaf, listener) = (Fixture.connect(socket.path), Fixture.connect(socket.path))
        defer {
            close(deaf)
            close(listener)
        }
        socket.turn()
        var received = 0
        while socket.counters.dropped < 100 {
            socket.announce(.warning)
            received += Fixture.received(listener)?.isEmpty == false ? 1 : 0
            try #require(received < 1_000_000)
        }
        // Only notices to the client that does not read were dropped.
        #expect(received == socket.counters.notices - (received - 100) && received > 100)
        #expect(Fixture.received(deaf)?.hasPrefix("warning\nwarning\n") == true)
    }

    @Test func `the number of connections is bounded, and a closed connection makes room for another`() throws {
        do {
            let socket = try PressureSocket(directory: directory.path, unit: "web")
            var clients = (0..<40).map { _ in Fixture.connect(socket.path) }
            for _ in 0..<5 { socket.turn() }
            #expect(socket.connectionCount == PressureSocket.maximumConnections && socket.counters.refused == 8)
            for client in clients { Fixture.hangUp(client) }
            for _ in 0..<5 { socket.turn() }
            #expect(socket.connectionCount == 0 && socket.announce(.critical) == 0)
            clients = [Fixture.connect(socket.path)]
            socket.turn()
            #expect(socket.connectionCount == 1 && Fixture.received(clients[0]) == "critical\n")
            close(clients[0])
        }
        #expect(Fixture.connect(directory.path + "/web.pressure") == -ENOENT)
    }
}

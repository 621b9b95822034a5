import Glibc
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollService

/// Bounds on the endpoint's resources that one client may use, on a manual clock.
@Suite struct AdminBoundsTests {
    private static func bounds(_ change: (inout AdminEndpoint.Bounds) -> Void) -> AdminEndpoint.Bounds {
        var bounds = AdminEndpoint.Bounds()
        change(&bounds)
        return bounds
    }

    @Test func `a line that is too long ends that connection alone`() async throws {
        try await AdminFixture.run(bounds: Self.bounds { $0.line = 256 }) { fixture in
            let long = try fixture.client(), other = try fixture.client()
            try long.send([UInt8](repeating: UInt8(ascii: "a"), count: 1 << 20))
            let answer = try long.decode(long.nextLine())
            #expect(answer.error == "a request has at most 256 bytes, its newline included")
            #expect(throws: AdminError.self) { try long.nextLine() }
            #expect(try other.answer(to: AdminRequest(.status)).ok)
            #expect(fixture.endpoint.counts.cutOff == 1)
            #expect(fixture.endpoint.counts.malformed == 1)
            let longest = #"{"command":"status"}"# + String(repeating: " ", count: 235)
            #expect(longest.utf8.count == 255)
            #expect(try fixture.answer(longest).ok)
        }
    }

    @Test func `a client that sends half a line is cut off after the time limit`() async throws {
        try await AdminFixture.run { fixture in
            let half = try fixture.client(), other = try fixture.client()
            try half.send(Array(#"{"command":"#.utf8))
            await fixture.pass(.seconds(1)) { fixture.endpoint.counts.cutOff == 1 }
            #expect(
                try half.decode(half.nextLine()).error
                    == "cannot read the request because no newline came within 5.0 seconds; end each request with a newline")
            #expect(try other.answer(to: AdminRequest(.status)).ok)
        }
    }

    @Test func `a silent client is cut off, and a silent watcher is not`() async throws {
        try await AdminFixture.run { fixture in
            let silent = try fixture.client(), watcher = try fixture.client()
            #expect(try watcher.answer(to: Self.watch(60_000)).ok)
            await fixture.pass(.seconds(1)) { fixture.endpoint.counts.cutOff == 1 }
            #expect(throws: AdminError.self) { try silent.nextLine() }
            #expect(try watcher.decode(watcher.nextLine()).ok)
            #expect(fixture.endpoint.counts.cutOff == 1)
        }
    }

    @Test func `a client that does not take answers is cut off, and others are served meanwhile`() async throws {
        try await AdminFixture.run(holders: 300) { fixture in
            let slow = try fixture.client(), other = try fixture.client()
            for _ in 0..<40 { try slow.send(Array((#"{"command":"status"}"# + "\n").utf8)) }
            // The client's socket is full after some answers.
            await fixture.pass(.seconds(1)) { fixture.endpoint.counts.cutOff == 1 }
            #expect(try other.answer(to: AdminRequest(.status)).ok)
            #expect(fixture.endpoint.counts.requests < 40)
        }
    }

    @Test func `connections are bounded, and a closed one makes place again`() async throws {
        try await AdminFixture.run(bounds: Self.bounds { $0.connections = 2 }) { fixture in
            let first = try fixture.client()
            var second: AdminClient? = try fixture.client()
            #expect(try first.answer(to: AdminRequest(.status)).ok)
            #expect(try second?.answer(to: AdminRequest(.status)).ok == true)
            let third = try fixture.client()
            let answer = try third.answer(to: AdminRequest(.status))
            #expect(answer.code == "busy")
            #expect(answer.error?.hasPrefix("cannot accept the connection because 2 are open") == true)
            #expect(fixture.endpoint.counts.refused == 1)
            second = nil
            try await until("a place") { try fixture.client().answer(to: AdminRequest(.tasks)).ok }
            #expect(try first.answer(to: AdminRequest(.status)).ok)
        }
    }

    @Test func `watchers get repeated answers, and the number of watchers is bounded`() async throws {
        try await AdminFixture.run(bounds: Self.bounds { $0.watchers = 1 }) { fixture in
            let watcher = try fixture.client(), second = try fixture.client()
            #expect(try watcher.answer(to: Self.watch(100)).status?.level == "normal")
            for _ in 0..<3 {
                fixture.clock.advance(by: .milliseconds(100))
                fixture.endpoint.wake()
                #expect(try watcher.decode(watcher.nextLine()).status != nil)
            }
            let refused = try second.answer(to: Self.watch(100))
            #expect(refused.code == "busy")
            #expect(try second.answer(to: AdminRequest(.status)).ok)
            // Another request ends watching.
            #expect(try watcher.answer(to: AdminRequest(.tasks)).tasks != nil)
            #expect(try second.answer(to: Self.watch(100)).ok)
        }
    }

    @Test func `changes wait in a bounded queue`() async throws {
        try await AdminFixture.run(bounds: Self.bounds { $0.changes = 1 }) { fixture in
            let holder = SlowHolder(), purge = Array((#"{"command":"purge","name":"slow"}"# + "\n").utf8)
            fixture.manager.register(holder)
            let clients = try (0..<3).map { _ in try fixture.client() }
            try clients[0].send(purge)
            await fixture.until { holder.isAsked }
            try clients[1].send(purge)
            await fixture.until { fixture.endpoint.counts.requests == 2 }
            try clients[2].send(purge)
            #expect(try clients[2].decode(clients[2].nextLine()).code == "busy")
            holder.letGo()
            #expect(try clients[0].decode(clients[0].nextLine()).ok)
            #expect(try clients[1].decode(clients[1].nextLine()).ok)
        }
    }

    @Test func `a client that closes in the middle of a request leaves nothing behind`() async throws {
        try await AdminFixture.run(holders: 300) { fixture in
            let holder = SlowHolder()
            fixture.manager.register(holder)
            let purger = try fixture.client(), reader = try fixture.client()
            try purger.send(Array((#"{"command":"purge","name":"slow"}"# + "\n").utf8))
            await fixture.until { holder.isAsked }
            try reader.send(Array(String(repeating: #"{"command":"status"}"# + "\n", count: 40).utf8))
            _ = try reader.nextLine()
            // A close alone leaves the connection open while a child that another test is just starting has a copy of
            // the descriptor.
            for client in [purger, reader] { shutdown(client.descriptor, Int32(SHUT_RDWR)) }
            holder.letGo()
            await fixture.until { fixture.endpoint.counts.untaken == 2 }
            #expect(try fixture.answer(#"{"command":"status"}"#).ok)
        }
    }

    @Test func `a client that sends all and closes the sending side still gets answers`() async throws {
        try await AdminFixture.run { fixture in
            let client = try fixture.client()
            try client.send(Array((#"{"command":"tasks"}"# + "\n" + #"{"command":"status"}"# + "\n" + "{").utf8))
            shutdown(client.descriptor, Int32(SHUT_WR))
            #expect(try client.decode(client.nextLine()).tasks != nil)
            #expect(try client.decode(client.nextLine()).status != nil)
            #expect(throws: AdminError.self) { try client.nextLine() }
            #expect(fixture.endpoint.counts.malformed == 1)
        }
    }

    private static func watch(_ milliseconds: Int) -> AdminRequest {
        var request = AdminRequest(.watch)
        request.milliseconds = milliseconds
        return request
    }
}

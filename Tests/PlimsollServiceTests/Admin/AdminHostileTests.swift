import Foundation
import Glibc
import Plimsoll
import PlimsollTesting
import Testing

@testable import PlimsollService

/// Hostile input: the service continues with any input, and counts the hostile requests.
@Suite struct AdminHostileTests {
    /// The inputs and answers of a run. The claim includes that each kind of input occurred.
    private struct Tally {
        var kinds: Set<String> = []
        var answered = 0
    }

    @Test func `random input in random chunks changes nothing and stops no other client`() async throws {
        // A new seed each time, which is printed. Set PLIMSOLL_SEED to repeat a failure.
        let seed = ProcessInfo.processInfo.environment["PLIMSOLL_SEED"].flatMap { UInt64($0) } ?? .random(in: 0...UInt64.max)
        print("seed \(seed)")
        try await AdminFixture.run { fixture in
            var random = SeededGenerator(seed: seed), tally = Tally()
            let witness = try fixture.client()
            for round in 0..<300 {
                let client = try fixture.client()
                // In turn, so that the number of each kind is certain.
                try Self.play(Self.kinds[round % Self.kinds.count], client, &random, &tally)
                let status = try witness.answer(to: AdminRequest(.status))
                #expect(status.ok, "seed \(seed), round \(round)")
            }
            let counts = fixture.endpoint.counts
            #expect(fixture.images.count == 4 && fixture.rows.count == 4, "seed \(seed): something was purged")
            #expect(fixture.images.limit == .mebibytes(4), "seed \(seed)")
            #expect(tally.kinds.count == Self.kinds.count, "seed \(seed): \(tally.kinds)")
            #expect(counts.malformed > 50 && tally.answered > 50, "seed \(seed): \(counts)")
            #expect(counts.requests >= 300, "seed \(seed): \(counts)")
            // Checked before the last answer.
            #expect(fixture.manager.level == .normal, "seed \(seed)")
        }
    }

    private static let kinds = ["bytes", "huge", "deep", "mutated", "types", "half", "many lines", "leave"]

    private static func play(_ kind: String, _ client: AdminClient, _ random: inout SeededGenerator, _ tally: inout Tally) throws {
        tally.kinds.insert(kind)
        switch kind {
        case "bytes":
            let bytes = (0..<Int.random(in: 1...3000, using: &random)).map { _ in UInt8.random(in: 0...255, using: &random) }
            try client.send(bytes + [10])
            // At least one line is answered. The bytes may have formed several lines.
            if try client.decode(client.nextLine()).code == "malformed" { tally.answered += 1 }
        case "huge":
            try client.send([UInt8](repeating: UInt8(ascii: "["), count: Int.random(in: 5000...200_000, using: &random)))
            #expect(try client.decode(client.nextLine()).error?.hasPrefix("a request has at most") == true)
        case "deep":
            let depth = Int.random(in: 2...1900, using: &random), isObject = Bool.random(using: &random)
            try client.send(Array(String(repeating: isObject ? #"{"a":"# : "[", count: isObject ? min(depth, 800) : depth).utf8) + [10])
            #expect(try client.decode(client.nextLine()).error == "the line is nested; a request is one flat JSON object")
        case "mutated":
            // A mutation of a request that changes nothing, whichever byte is hit: no such request is one letter away
            // from a request that changes state.
            var bytes = Array(#"{"command":"explain","last":5}"#.utf8)
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            try client.send(bytes + [10])
            _ = try client.decode(client.nextLine())
        case "types":
            let values = ["null", "true", "-1", "1e99", "\"x\"", "\"\\u0000\"", "0.1", "99999999999999999999999", "\"\\ud800\""]
            let key = AdminRequest.CodingKeys.allCases.randomElement(using: &random)!.rawValue, value = values.randomElement(using: &random)!
            let command = AdminRequest.Command.allCases.filter { $0 != .watch && $0 != .purge }.randomElement(using: &random)!
            try client.send(Array(#"{"command":"\#(command)","\#(key)":\#(value)}"#.utf8) + [10])
            let answer = try client.decode(client.nextLine())
            if answer.code == "malformed" { tally.answered += 1 }
        case "half": try client.send(Array(#"{"command":"status"#.utf8))
        case "many lines":
            try client.send(Array(String(repeating: "x\n", count: Int.random(in: 1...500, using: &random)).utf8))
            _ = try client.nextLine()
        default: try client.send(Array((#"{"command":"status"}"# + "\n").utf8))
        }
    }

    @Test func `of many connections at once some are served, the others are refused, and none waits`() async throws {
        try await AdminFixture.run { fixture in
            var served = 0, refused = 0
            for _ in 0..<20 {
                let clients = try (0..<24).map { _ in try fixture.client() }
                for client in clients {
                    let answer = try client.answer(to: AdminRequest(.tasks))
                    if answer.ok { served += 1 } else if answer.code == "busy" { refused += 1 }
                }
            }
            #expect(served + refused == 480)
            #expect(served >= 16 && refused >= 8, "\(served) served, \(refused) refused")
            let counts = fixture.endpoint.counts
            #expect(counts.refused == refused && counts.connections == served)
        }
    }

    @Test func `hanging clients take all places for no longer than the bounds, and are counted`() async throws {
        var bounds = AdminEndpoint.Bounds()
        bounds.connections = 8
        // A socket holds some 200 kB of unread data: a few answers of this size.
        try await AdminFixture.run(bounds: bounds, holders: 300) { fixture in
            for round in 1...3 {
                let half = try (0..<4).map { _ in try fixture.client() }, deaf = try (0..<4).map { _ in try fixture.client() }
                for client in half { try client.send(Array(#"{"command":"sta"#.utf8)) }
                for client in deaf { try client.send(Array(String(repeating: #"{"command":"status"}"# + "\n", count: 40).utf8)) }
                await fixture.until { fixture.endpoint.counts.connections == 8 * round + round - 1 }
                #expect(try fixture.answer(#"{"command":"tasks"}"#).code == "busy")
                await fixture.pass(.seconds(1)) { fixture.endpoint.counts.cutOff == 8 * round }
                #expect(try fixture.answer(#"{"command":"tasks"}"#).ok)
                withExtendedLifetime((half, deaf)) {}
            }
            #expect(fixture.endpoint.counts.refused == 3 && fixture.endpoint.counts.malformed == 12)
        }
    }

    @Test func `deep lines are refused before a parser sees them`() {
        let json = AdminJSON()
        #expect(AdminJSON.depth(Array(#"{"a":"[[[{","b":"\"["}"#.utf8)[...]) == 1)
        #expect(AdminJSON.depth(Array("]]]{".utf8)[...]) <= 1)
        #expect(AdminJSON.depth([UInt8](repeating: UInt8(ascii: "["), count: 1_000_000)[...]) == 1_000_000)
        #expect(throws: AdminRefusal.self) { try json.request([UInt8](repeating: UInt8(ascii: "["), count: 1_000_000)[...]) }
        #expect(throws: AdminRefusal.self) { try json.request(Array("]]]{{}}".utf8)[...]) }
    }

    @Test func `numbers that JSON lacks are encoded in a form that both sides read`() throws {
        let json = AdminJSON()
        var answer = AdminAnswer()
        answer.seconds = .infinity
        let line = json.line(answer)
        #expect(String(decoding: line, as: UTF8.self) == #"{"ok":true,"seconds":"inf"}"# + "\n")
        #expect(try json.answer(line.dropLast()).seconds == .infinity)
    }
}

import Plimsoll
import PlimsollLifecycle
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollSupervisor

@Suite struct AuditTests {
    static let actions: [UnitAction] = [
        .warn(.critical), .release(.mebibytes(3)), .background, .suspend, .resume(.room), .resume(.keepAlive), .resume(.ending),
        .reclaim(.max), .throttle(true), .throttle(false), .end(.killSuspended), .end(.ask(grace: .milliseconds(12_345))), .end(.kill), .start,
    ]

    private static var records: [AuditRecord] {
        actions.flatMap { action in
            var decision = Decision(at: .microseconds(1_250_001), unit: "web.1", action: action, reason: "a \"b\" \\ \n\u{1}\u{7f} ö 🦊")
            let first = AuditRecord(decision, level: .warning, shortfall: 12)
            decision.isDryRun = true
            return [
                first, AuditRecord(Outcome(decision, at: .seconds(3), relief: .init(-5)), level: .normal, shortfall: .zero),
                AuditRecord(Outcome(decision, at: .seconds(3), relief: .max, failure: "no\tsuch"), level: .critical, shortfall: .max),
            ]
        }
    }

    @Test func `every record is parsed back from the written line`() throws {
        for record in Self.records {
            #expect(!record.line.contains("\n"))
            #expect(try AuditRecord(parsing: record.line) == record)
            #expect(try AuditRecord(parsing: record.line + "\n") == record)
        }
    }

    @Test func `a line has the documented form`() {
        let decision = Decision(at: .seconds(2), unit: "web", action: .end(.ask(grace: .seconds(10))), reason: "why", isDryRun: true)
        let record = AuditRecord(Outcome(decision, at: .seconds(3), relief: 7, failure: "late"), level: .critical, shortfall: 9)
        #expect(
            record.line == #"{"v":1,"at":3000000,"what":"outcome","unit":"web","action":"end","how":"ask","grace":10000000,"reason":"why","#
                + #""level":"critical","shortfall":9,"dry":true,"took":1000000,"relief":7,"failure":"late"}"#)
    }

    @Test func `lines are appended to the buffer within the reserved room`() {
        var buffer: [UInt8] = []
        buffer.reserveCapacity(1 << 16)
        let room = buffer.capacity
        for record in Self.records { record.write(to: &buffer) }
        #expect(buffer.capacity == room && buffer.count { $0 == 10 } == Self.records.count)
    }

    @Test(arguments: [
        ("", "column 1: truncated where { is expected"), ("[]", "column 1: expected {"), ("{}", "v is missing"),
        (#"{"v":1"#, "column 7: truncated where } is expected"),
        (#"{"v":2}"#, "the journal has version 2; this program reads version 1"), (#"{"v":1,"v":1}"#, "column 8: a duplicate key"),
        (#"{"v":1.5}"#, "column 7: expected }"), (#"{"v":01}"#, "column 6: not an integer of 64 bits"),
        (#"{"v":99999999999999999999}"#, "column 6: not an integer of 64 bits"), (#"{"v":"1"}"#, "v is not an integer"),
        (#"{"v":1}x"#, "column 8: data after the object"),
        (#"{"v":1,"at":1,"unit":"../x"}"#, "unit is not the name of a unit"),
        (#"{"v":1,"at":1,"unit":"x","action":"fly"}"#, "action is not a known action"),
        (#"{"v":1,"at":1,"unit":"x","action":"end","how":"softly"}"#, "how is not a known way to end"),
        (#"{"v":1,"at":1,"unit":"x","action":"start","reason":"","level":"high"}"#, "level is not normal, warning or critical"),
        (#"{"v":1,"x":"\ud800"}"#, "column 19: half of a surrogate pair"), (#"{"x":[1]}"#, "column 6: not a string, an integer, true, false or null"),
    ])
    func `a malformed record is refused with the reason`(line: String, reason: String) {
        #expect { try AuditRecord(parsing: line) } throws: { error in
            if "\(error)" != reason { Issue.record("\(line): \(error)") }
            return true
        }
    }

    @Test func `keys of later versions are ignored`() throws {
        let record = Self.records[0]
        let line = record.line.dropLast() + #","new":null,"newer":"\u00e9\ud83e\udd8a","newest":-3,"flag":false}"#
        #expect(try AuditRecord(parsing: line) == record)
    }

    @Test func `damaged lines are refused or read, and never trap`() {
        var refused = 0
        for seed in seeds(0..<20_000) {
            var generator = SeededGenerator(seed: seed)
            var bytes = Array(Self.records[Int(seed) % Self.records.count].line.utf8)
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                let place = Int.random(in: 0..<bytes.count, using: &generator)
                switch Int.random(in: 0..<4, using: &generator) {
                case 0: bytes[place] = UInt8.random(in: 0...255, using: &generator)
                case 1: bytes.removeSubrange(place...)
                case 2: bytes.insert(UInt8.random(in: 0...255, using: &generator), at: place)
                default: bytes.remove(at: place)
                }
                if bytes.isEmpty { bytes = [UInt8(ascii: "{")] }
            }
            let line = String(decoding: bytes, as: UTF8.self)
            // A line that is read must be sound: the record is the same after another round.
            do {
                let record = try AuditRecord(parsing: line)
                #expect((try? AuditRecord(parsing: record.line)) == record, "seed \(seed): \(line)")
            } catch { refused += 1 }
        }
        if !hasChosenSeed { #expect(refused > 10_000, "too few lines were damaged") }
    }

    @Test func `C36 an explanation names the action on a unit, the reason and the result`() {
        let end = Decision(at: .seconds(12), unit: "web", action: .end(.ask(grace: .seconds(10))), reason: "it stands\u{1b}[2J still")
        let other = Decision(at: .seconds(12), unit: "other", action: .suspend, reason: "no")
        let records = [
            AuditRecord(end, level: .critical, shortfall: .mebibytes(200)), AuditRecord(other, level: .critical, shortfall: .zero),
            AuditRecord(Outcome(end, at: .milliseconds(12_300), relief: .mebibytes(300)), level: .normal, shortfall: .zero),
        ]
        #expect(
            Explanation(of: "web", from: records).description == """
                web:
                  12 s  The unit was asked to end within 10 s because it stands\u{FFFD}[2J still (memory was at level critical, 200 MiB short). \
                That took 0.3 s and freed 300 MiB.
                """)
        #expect(Explanation(of: "nobody", from: records).description == "nobody: no action so far.")
    }
}

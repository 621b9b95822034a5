import Plimsoll
import PlimsollLinux
import PlimsollTesting
import TestSupport
import Testing

@Suite struct MessageTests {
    static let fromChildren: [ChildMessage] = [
        .hello(version: 1), .state(.foreground), .state(.background), .state(.suspendedReady), .tasks(0, until: nil),
        .tasks(3, until: .milliseconds(1500)),
        .caches(held: .mebibytes(5), reclaimable: .zero), .saved(true), .saved(false), .locks(true), .locks(false), .keepAlive(every: .seconds(600)),
        .suspend,
        .bye,
        .worth(
            WorthOffer(
                held: 1 << 20, room: 5, curve: MissCurve(requests: 900, points: [.init(bytes: 10, misses: 900), .init(bytes: 1 << 40, misses: 0)]))),
        .worth(
            WorthOffer(
                held: 1 << 60, room: 0,
                curve: MissCurve(requests: Double(1 << 60), points: [.init(bytes: 1 << 60, misses: Double(1 << 60))]))),
        .worth(WorthOffer(held: 0, room: 1 << 60, curve: MissCurve(requests: 7, points: [], isReliable: false))),
    ]
    static let fromSupervisors: [SupervisorMessage] =
        PressureLevel.allCases.map { .level($0) } + SupervisorMessage.Refusal.allCases.map { .refused($0) }
        + [
            .release(.gibibytes(2)), .background(deadline: .seconds(5)), .resume, .checkpoint, .ending(grace: .seconds(10)),
            .share(ProcessShare(bytes: nil, total: 1 << 30)), .share(ProcessShare(bytes: 0, total: 7)),
            .keepAlive(answerTo: 7, accepted: true),
            .keepAlive(answerTo: .init(Int.max), accepted: false),
        ]

    @Test func `written messages are read back equal`() throws {
        for (index, message) in Self.fromChildren.enumerated() {
            let line = message.encoded(UInt64(index) + 1)
            let (sequence, read) = try ChildMessage.decode(line.dropLast())
            #expect(line.last == 10 && sequence == UInt64(index) + 1 && read == message)
        }
        for message in Self.fromSupervisors {
            let line = message.encoded(.max)
            let (sequence, read) = try SupervisorMessage.decode(line.dropLast())
            #expect(line.last == 10 && sequence == .max && read == message)
        }
        #expect(
            String(decoding: ChildMessage.caches(held: .kibibytes(1), reclaimable: 512).encoded(7), as: UTF8.self)
                == "7 caches bytes=1024 reclaimable=512\n")
    }

    @Test(arguments: ["", "0", "1:5,2:4", "0:5,2:4,2:3", "0:5,2", "0:5,2:-1", "0:5,2:nan", "0:5,2:4,", "0:5,2305843009213693952:4", "0:1e9,2:4"])
    func `an invalid curve is refused`(_ curve: String) {
        #expect(throws: MessageError.invalid("curve")) { try ChildMessage.decode(Array("1 worth bytes=1 room=1 curve=\(curve)".utf8)) }
    }

    @Test func `a curve with the most allowed points fits in a line, and one more point is refused`() throws {
        func line(_ count: Int) -> [UInt8] {
            let points = (1...count).map { MissCurve.Point(bytes: (1 << 60) - count + $0, misses: 1e18) }
            return ChildMessage.worth(WorthOffer(held: .max, room: .max, curve: MissCurve(requests: 1e18, points: points))).encoded(.max)
        }
        let most = line(Division.mostPoints)
        #expect(most.count < MessageLine.maximumLength)
        guard case .worth(let offer) = try ChildMessage.decode(most.dropLast()).message else { return #expect(Bool(false), "another message") }
        #expect(offer.held == 1 << 60 && offer.curve.points.count == Division.mostPoints)
        #expect(throws: MessageError.invalid("curve")) { try ChildMessage.decode(line(Division.mostPoints + 1).dropLast()) }
    }

    @Test func `numbers beyond the bounds are written in the reader's range`() throws {
        let messages: [ChildMessage] = [
            .caches(held: .max, reclaimable: ByteCount(-5)), .tasks(0, until: .seconds(-3)), .keepAlive(every: .seconds(Int64.max)),
        ]
        for message in messages { _ = try ChildMessage.decode(message.encoded(1).dropLast()) }
        #expect(try ChildMessage.decode(messages[0].encoded(1).dropLast()).message == .caches(held: ByteCount(1 << 60), reclaimable: .zero))
    }

    @Test func `a newer side may send unknown words`() throws {
        #expect(try ChildMessage.decode(Array("9 tasks n=1 colour=blue".utf8)).message == .tasks(1, until: nil))
        let (sequence, message) = try ChildMessage.decode(Array("9 sing song=la".utf8))
        #expect(sequence == 9 && message == nil)
    }

    @Test(arguments: [
        ("", MessageError.noSequence), ("1", .noSequence), ("0 bye", .noSequence), ("01 bye", .noSequence), ("-1 bye", .noSequence),
        ("x bye", .noSequence),
        ("99999999999999999999 bye", .noSequence), (" 1 bye", .noSequence), ("1  bye", .noVerb), ("1 Bye", .noVerb), ("1 bye ", .noField),
        ("1 state is", .noField),
        ("1 state =x", .noField), ("1 state", .missing("is")), ("1 state is=", .invalid("is")), ("1 state is=sleeping", .invalid("is")),
        ("1 saved is=true", .invalid("is")), ("1 tasks n=-1", .invalid("n")), ("1 tasks n=1000001", .invalid("n")),
        ("1 tasks n=1 n=2", .duplicateField("n")),
        ("1 tasks n=1 until=x", .invalid("until")), ("1 caches bytes=1", .missing("reclaimable")),
        ("1 caches bytes=9e9 reclaimable=0", .invalid("bytes")),
        ("1 keep-alive seconds=86401", .invalid("seconds")), ("1 hello v=0", .invalid("v")), ("1 state is=fore\u{7}", .notText),
        ("1 bye\r", .notText),
        ("1 bye a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1 p=1 q=1", .tooManyFields),
    ])
    func `a line that breaks the rules is refused with the rule`(line: String, error: MessageError) {
        #expect(throws: error) { try ChildMessage.decode(Array(line.utf8)) }
    }

    @Test func `lines up to the length limit are accepted, and longer lines are refused`() throws {
        let longest = "1 tasks n=1 x=" + String(repeating: "y", count: 4095 - 14)
        #expect(try ChildMessage.decode(Array(longest.utf8)).message == .tasks(1, until: nil))
        #expect(throws: MessageError.tooLong) { try ChildMessage.decode(Array((longest + "y").utf8)) }
    }

    @Test func `a million malformed lines never trap, and each accepted line reads back equal`() async {
        let seed = usualSeed(77)
        var random = SeededGenerator(seed: seed)
        let samples = Self.fromChildren.map { $0.encoded(UInt64(12)).dropLast() } + Self.fromSupervisors.map { $0.encoded(3).dropLast() }
        let alphabet = Array("0123456789=- abcdyesno\u{0}\u{ff}\n".utf8)
        var (taken, refused, unstable) = (0, 0, 0)
        for index in 0..<1_000_000 {
            // Gives other tests a turn on the cooperative pool's few threads.
            if index % 10_000 == 0 { await giveWay() }
            var line = Array(samples[Int(truncatingIfNeeded: random.next() % UInt64(samples.count))])
            for _ in 0..<1 + random.next() % 3 {
                let place = Int(random.next() % UInt64(line.count))
                switch random.next() % 4 {
                case 0: line[place] = alphabet[Int(random.next() % UInt64(alphabet.count))]
                case 1: line.remove(at: place)
                case 2: line.insert(alphabet[Int(random.next() % UInt64(alphabet.count))], at: place)
                default: line[place] = UInt8(truncatingIfNeeded: random.next())
                }
                if line.isEmpty { line = [0] }
            }
            do throws(MessageError) {
                let (sequence, message) = try ChildMessage.decode(line)
                taken += 1
                guard let message else { continue }
                if (try ChildMessage.decode(message.encoded(sequence).dropLast())).message != message { unstable += 1 }
            } catch { refused += 1 }
        }
        #expect(taken > 10_000 && refused > 100_000 && unstable == 0, "seed \(seed): \(taken) taken, \(refused) refused, \(unstable) unstable")
    }
}

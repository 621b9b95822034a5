import Foundation
import PlimsollLifecycle
import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollCLI
@testable import PlimsollService

/// False answers of a peer: with any numbers, the command line continues, and the output fits the terminal.
@Suite struct AdminFuzzTests {
    /// Draws every view of `answer`.
    private static func show(_ answer: AdminAnswer) -> String {
        var text = ""
        for (columns, rows) in [(20, 4), (80, 24), (300, 100)] {
            let frame = TopView(columns: columns, rows: rows).frame(answer)
            #expect(frame.count == rows && frame.allSatisfy { $0.count <= columns })
            text += frame.joined(separator: "\n")
        }
        if let status = answer.status {
            text += AdminText.status(status) + AdminText.caches(status.holders) + AdminText.tasks(status.tasks)
            for action in status.actions {
                text += AdminText.purge(action) + AdminText.action(action, at: status.atSeconds)
            }
            for admission in status.admissions { text += AdminText.admission(admission) }
            text += AdminExplanation(status).sentences.joined(separator: "\n")
        }
        return text
    }

    /// Returns an answer that includes requests by priority.
    private static func answer() throws -> [String: Any] {
        var answer = try TopViewTests.answer(caches: 3, tasks: 2, actions: 3)
        var shed = RequestCounts()
        shed.refused = ["sheddable": ["concurrency": 1, "arrivals": 2, "paused": 3], "normal": ["paused": 4]]
        let manager = ResourceManager(source: ScriptedPressureSource()),
            shedder = RequestShedder("http", policy: SheddingPolicy(limit: 1))
        manager.lifecycle.pausables.add(shedder)
        _ = shedder.begin(.normal)
        answer.status?.admissions = manager.status.admissions
        answer.status?.admissions[0].requests = shed
        answer.status?.holders[0].worth = AdminTextTests.worth()
        answer.status?.requests = RequestsStatus(
            isMetered: true, running: 1, heldBytes: 1, cancelledOverLimit: 1, cancelledForPressure: 1,
            largest: [.init(name: "r", heldBytes: 1, peakBytes: 1, limitBytes: 1, isCancelled: false)])
        answer.status?.moves = [
            MoveStatus(.init(began: .zero, at: .zero, gain: 0.1, changes: [.init(name: "pages", before: 1, after: 2)]))
        ]
        let line = AdminJSON().line(answer)
        return try #require(JSONSerialization.jsonObject(with: Data(line)) as? [String: Any])
    }

    private static func replaceNumbers(_ value: Any, _ replacement: () -> Any?) -> Any {
        switch value {
        case let object as [String: Any]: object.mapValues { replaceNumbers($0, replacement) }
        case let array as [Any]: array.map { replaceNumbers($0, replacement) }
        case let number as NSNumber where !isBoolean(number): replacement() ?? number
        default: value
        }
    }

    private static func isBoolean(_ number: NSNumber) -> Bool {
        String(cString: number.objCType) == "c" || number is Bool && "\(number)" == "true"
    }

    private static func decode(_ object: Any) throws -> AdminAnswer? {
        try? AdminJSON().answer(Array(JSONSerialization.data(withJSONObject: object)))
    }

    @Test(arguments: [Int.max, Int.min, -1, 0, 1])
    func `sums of a peer's numbers end at the largest possible number`(number: Int) throws {
        #expect(try !Self.show(Self.wherePossible(number)).isEmpty)
        // An answer is refused if a number must not be negative, or so large.
        let all = try Self.decode(Self.replaceNumbers(try Self.answer()) { NSNumber(value: number) })
        #expect(all.map { !Self.show($0).isEmpty } ?? (number < 0 || number > 1))
    }

    /// Returns a valid answer with `number` in each place that may have the number.
    private static func wherePossible(_ number: Int) throws -> AdminAnswer {
        var answer = try TopViewTests.answer(caches: 3, tasks: 2, actions: 3)
        for index in answer.status!.holders.indices {
            answer.status!.holders[index].heldBytes = number
            answer.status!.holders[index].cache?.hits = .max
            answer.status!.holders[index].cache?.misses = .max
        }
        for index in answer.status!.actions.indices {
            answer.status!.actions[index].releasedBytes = number
            answer.status!.actions[index].releasedVolatileBytes = number
        }
        answer.status!.memory?.usageBytes = number
        answer.status!.memory?.availableBytes = number < 0 ? nil : Int.min
        answer.status!.counts.releases.releasedBytes = number
        answer.status!.counts.releases.releasedVolatileBytes = number
        return answer
    }

    @Test func `counts of refusals end at the largest possible number`() {
        var counts = RequestCounts()
        counts.refused = ["normal": ["arrivals": .max, "paused": 1, "concurrency": .max]]
        #expect(counts.refused("normal") == .max && counts.refused("critical") == 0)
    }

    @Test func `an answer with arbitrary numbers and bytes is shown or refused`() throws {
        let seed = newSeed(), runs = ProcessInfo.processInfo.environment["PLIMSOLL_RUNS"].flatMap { Int($0) } ?? 400
        var random = SeededGenerator(seed: seed), shown = 0, refused = 0
        let extremes: [NSNumber] = [
            0, 1, -1, NSNumber(value: Int.max), NSNumber(value: Int.min), NSNumber(value: Int.max - 1),
            NSNumber(value: UInt64.max),
            NSNumber(value: 1e308), NSNumber(value: -1e308), NSNumber(value: Double.leastNonzeroMagnitude), NSNumber(value: 9.3e18),
            NSNumber(value: -0.5),
        ]
        let plain = try Self.answer()
        var numbers = 0
        _ = Self.replaceNumbers(plain) {
            numbers += 1
            return nil
        }
        for run in 0..<runs {
            // One or two numbers in a third of the runs: with more numbers, few answers can be shown.
            let share = [1.5 / Double(numbers), 0.2, 1][run % 3]
            let object = Self.replaceNumbers(plain) {
                Double.random(in: 0..<1, using: &random) < share ? extremes.randomElement(using: &random) : nil
            }
            var bytes = try Array(JSONSerialization.data(withJSONObject: object))
            if run % 4 == 0 {
                for _ in 0..<Int.random(in: 1...8, using: &random) {
                    bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
                }
            }
            if run % 16 == 0 { bytes.removeLast(Int.random(in: 1..<bytes.count, using: &random)) }
            guard let answer = try? AdminJSON().answer(bytes) else {
                refused += 1
                continue
            }
            _ = Self.show(answer)
            shown += 1
        }
        // A few runs need not show both outcomes.
        #expect(shown + refused == runs && (runs < 100 || min(shown, refused) > runs / 40), "seed \(seed): \(shown) shown, \(refused) refused")
    }
}

import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The timed events at one gate, and the rules that the gate must obey.
private struct GateHistory: Sendable {
    typealias Span = ClosedRange<Int64>

    struct Request: Sendable {
        var call: Span
        /// The time inside; `nil` for a refused request.
        var inside: Span?
    }

    struct Pause: Sendable {
        /// The call that pauses, and the time at which all work had ended; `nil` if some work had not ended in time.
        var closing: Span, drained: Int64?
        /// The call that admits work again.
        var opening: Span
    }

    var limit: Int
    var requests: [Request] = []
    var pauses: [Pause] = []

    var faults: [String] {
        var faults: [String] = []
        for request in requests {
            guard let inside = request.inside else {
                let isPossible = pauses.contains {
                    $0.closing.lowerBound < request.call.upperBound && request.call.lowerBound < $0.opening.upperBound
                }
                if !isPossible { faults.append("a request was refused without a pause") }
                continue
            }
            for pause in pauses {
                if let drained = pause.drained, drained < pause.opening.lowerBound,
                    inside.overlaps(drained...pause.opening.lowerBound)
                {
                    faults.append("work is inside after the drain")
                }
                if pause.closing.upperBound < request.call.lowerBound, inside.lowerBound < pause.opening.lowerBound {
                    faults.append("a request was admitted during a pause")
                }
            }
        }
        let insides = requests.compactMap(\.inside)
        for span in insides where insides.count(where: { $0.contains(span.lowerBound) }) > limit {
            faults.append("more than \(limit) requests are inside")
        }
        return faults
    }
}

/// Histories of the quiesce gate: requests against pauses that drain.
@Suite struct GateHistoryTests {
    @Test func `the rules reject impossible histories`() {
        let pause = GateHistory.Pause(closing: 10...11, drained: 20, opening: 30...31)
        func faults(_ requests: (GateHistory.Span, GateHistory.Span?)...) -> [String] {
            GateHistory(limit: 2, requests: requests.map { .init(call: $0.0, inside: $0.1) }, pauses: [pause]).faults
        }
        #expect(faults((0...40, 5...19), (0...40, 6...18), (12...14, nil), (12...50, 31...49)) == [])
        #expect(faults((0...40, 5...21)) == ["work is inside after the drain"])
        #expect(faults((12...19, 13...18)) == ["a request was admitted during a pause"])
        #expect(faults((0...5, nil)) == ["a request was refused without a pause"])
        #expect(faults((0...9, 1...8), (0...9, 2...7), (0...9, 3...6)) == ["more than 2 requests are inside"])
        let undrained = GateHistory(
            limit: 2, requests: [.init(call: 0...40, inside: 5...35), .init(call: 12...14, inside: nil)],
            pauses: [.init(closing: 10...11, drained: nil, opening: 30...31)])
        #expect(undrained.faults == [], "a pause in which not all work ended refuses too")
    }

    private final class Recording: Sendable {
        static let calls = 16, limit = 2
        private let set = QuiesceSet(time: .running)
        private let limiter: ConcurrencyLimiter
        private let history = Mutex(GateHistory(limit: limit))
        private let isPausing = Atomic(false)

        init(_ number: Int) {
            // Half of the gates refuse during a pause, and half keep callers waiting.
            limiter = ConcurrencyLimiter("gate", limit: Self.limit, inBackground: 0, waitingWhilePausedAtMost: number % 2 == 0 ? .zero : nil)
            set.setState(.active)
            set.add(limiter)
        }

        private static let origin = ContinuousClock.now
        private static var now: Int64 {
            let parts = (ContinuousClock.now - origin).components
            return parts.seconds * 1_000_000_000 + parts.attoseconds / 1_000_000_000
        }

        func perform(_ random: inout SeededGenerator) async {
            if Int.random(in: 0..<6, using: &random) == 0 { return await pause() }
            let yields = Int.random(in: 0..<3, using: &random), begin = Self.now
            let inside = try? await limiter.run {
                let entered = Self.now
                for _ in 0..<yields { await giveWay() }
                return entered...Self.now
            }
            let end = Self.now
            history.withLock { $0.requests.append(.init(call: begin...end, inside: inside)) }
        }

        private func pause() async {
            // Relaxed: one caller wins the exchange; nothing else depends on the flag.
            guard !isPausing.exchange(true, ordering: .relaxed) else { return }
            let begin = Self.now
            set.setState(.inactive)
            let closing = begin...Self.now, late = await set.drain(within: .seconds(60)), drained = Self.now
            await giveWay()
            let opens = Self.now
            set.setState(.active)
            let opening = opens...Self.now
            // On a busy machine a minute may be too short for the work inside.
            history.withLock { $0.pauses.append(.init(closing: closing, drained: late.isEmpty ? drained : nil, opening: opening)) }
            isPausing.store(false, ordering: .relaxed)
        }

        var outcome: (faults: [String], overlaps: Bool) {
            let history = history.withLock { $0 }
            let overlaps = history.pauses.contains { pause in history.requests.contains { $0.call.overlaps(pause.closing) } }
            return (history.faults, overlaps)
        }
    }

    /// The calls of all histories. Each task takes the next call.
    private final class Work: Sendable {
        private let recordings: [Recording], seed: UInt64
        private let next = Atomic(0)

        init(_ recordings: [Recording], seed: UInt64) { (self.recordings, self.seed) = (recordings, seed) }

        func run() async {
            while true {
                let number = next.wrappingAdd(1, ordering: .relaxed).oldValue
                guard number < recordings.count * Recording.calls else { return }
                var random = SeededGenerator(seed: seed &+ UInt64(number) &* 0x9e37_79b9)
                await recordings[number / Recording.calls].perform(&random)
            }
        }
    }

    /// Number of histories of a test; `PLIMSOLL_RUNS` multiplies them.
    private static let histories = 5000

    @Test(arguments: [2, 3, 4]) func `C43 C54 histories of the gate obey the rules for requests, pauses and drains`(tasks: Int) async {
        for seed in seeds(0..<0) {
            let recordings = (0..<Self.histories).map { Recording($0) }, work = Work(recordings, seed: seed)
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<tasks { group.addTask { await work.run() } }
            }
            let outcomes = recordings.map(\.outcome), wrong = outcomes.filter { !$0.faults.isEmpty }
            let overlapping = outcomes.count { $0.overlaps }
            print("figure histories.gate.checked \(Self.histories) count")
            print("figure histories.gate.overlapping \(overlapping) count")
            print("figure histories.gate.wrong \(wrong.count) count")
            #expect(overlapping > 0)
            #expect(wrong.isEmpty, "seed \(seed): \(wrong.count) histories are wrong; the first: \(wrong.prefix(3))")
        }
    }
}

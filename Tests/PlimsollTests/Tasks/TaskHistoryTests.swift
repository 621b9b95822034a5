import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Histories of tokens: end against expiration against shutdown.
@Suite struct TaskHistoryTests {
    // MARK: The rules

    private func faults(_ token: TaskHistory.Token, sweeps: [TaskHistory.Span] = [], closes: [TaskHistory.Span] = []) -> [String] {
        TaskHistory(tokens: [token], sweeps: sweeps, closes: closes).faults
    }

    private func token(
        _ begin: TaskHistory.Span = 0...1, _ refusal: BackgroundTaskRefusal.Cause? = nil, _ change: (inout TaskHistory.Token) -> Void = { _ in }
    )
        -> TaskHistory.Token
    {
        var token = TaskHistory.Token(begin: begin, refusal: refusal)
        change(&token)
        return token
    }

    @Test func `possible histories are accepted`() {
        #expect(faults(token { ($0.ends, $0.reads) = ([2...3], [(1...2, true), (4...5, false)]) }) == [])
        // The end and the expiration overlap: the handler may be called or not, and either may be first.
        #expect(faults(token { ($0.ends, $0.asked, $0.reads) = ([2...5], [4], [(3...4, true)]) }, sweeps: [3...8]) == [])
        #expect(faults(token(4...5, .expiring), sweeps: [3...8]) == [] && faults(token(4...5, .shutdown), closes: [3...8]) == [])
        #expect(faults(token(4...5), closes: [3...8]) == [])
    }

    @Test func `impossible histories are refused`() {
        #expect(faults(token { $0.asked = [3, 4] }, sweeps: [2...5]).count == 1, "two calls of a handler")
        #expect(faults(token { ($0.ends, $0.asked) = ([2...3], [6]) }, sweeps: [4...8]).count == 1, "a call after the end")
        #expect(faults(token { $0.asked = [3] }, sweeps: [4...8]).count == 1, "a call before the expiration")
        #expect(faults(token(4...5) { $0.asked = [6] }, sweeps: [2...3]).count == 1, "a call for an expiration that was over")
        #expect(faults(token { ($0.ends, $0.reads) = ([2...3], [(4...5, true)]) }).count == 1, "active after the end")
        #expect(faults(token { $0.reads = [(9...10, true)] }, sweeps: [4...8]).count == 1, "active after an expiration")
        #expect(faults(token { $0.reads = [(4...5, false)] }, sweeps: [6...8]).count == 1, "lost")
        #expect(faults(token(4...5), closes: [2...3]).count == 1, "begun after the shutdown")
        #expect(faults(token(2...3, .shutdown), closes: [4...5]).count == 1, "refused before the shutdown")
        #expect(faults(token(2...3, .expiring), sweeps: [4...5]).count == 1, "refused before the expiration")
        #expect(faults(token(2...3, .tooMany)).count == 1, "refused for no reason")
    }

    // MARK: Histories

    /// A registry, and the recorded calls of several threads.
    private final class Recording: Sendable {
        static let calls = 14, tokens = 4
        private struct State {
            var history = TaskHistory()
            var tasks: [BackgroundTask] = []
            /// The number of each task in the history.
            var numbers: [Int] = []
        }

        private let registry: BackgroundTaskRegistry
        private let state = Mutex(State())

        init(_ alarms: Alarms, _ threads: HandlerThreads) {
            registry = BackgroundTaskRegistry(time: .running, alarms: alarms, threads: threads, width: 2)
        }

        private static let origin = ContinuousClock.now
        private static var now: Int64 {
            let parts = (ContinuousClock.now - origin).components
            return parts.seconds * 1_000_000_000 + parts.attoseconds / 1_000_000_000
        }

        private func span<Result>(_ body: () -> Result) -> (Result, TaskHistory.Span) {
            let begin = Self.now, result = body()
            return (result, begin...Self.now)
        }

        func perform(_ random: inout SeededGenerator) {
            switch Int.random(in: 0..<16, using: &random) {
            case 0..<5: begin(endsWhenAsked: Int.random(in: 0..<4, using: &random) > 0)
            case 5..<9:
                onSome(&random) {
                    $0.end()
                } record: {
                    $0.ends.append($2)
                }
            case 9..<13:
                onSome(&random) {
                    $0.isActive
                } record: {
                    $0.reads.append(($2, $1))
                }
            case 13, 14:
                let grace = Duration.microseconds(Int.random(in: 0..<400, using: &random))
                let (_, span) = span { registry.expireAndWait(.operator, within: grace) }
                state.withLock { $0.history.sweeps.append(span) }
            default:
                let (_, span) = span { registry.close() }
                state.withLock { $0.history.closes.append(span) }
            }
        }

        private func begin(endsWhenAsked: Bool) {
            // The handler needs the number, because the handler may run before `begin` has returned the task.
            let number = state.withLock { state -> Int? in
                guard state.history.tokens.count < Self.tokens else { return nil }
                state.history.tokens.append(.init(begin: 0...0))
                return state.history.tokens.count - 1
            }
            guard let number else { return }
            let (task, span) = span {
                registry.begin(
                    "token", #fileID, #line,
                    handler: .blocking { [self] task, _ in
                        let now = Self.now
                        state.withLock { $0.history.tokens[number].asked.append(now) }
                        guard endsWhenAsked else { return }
                        let (_, end) = self.span { task.end() }
                        state.withLock { $0.history.tokens[number].ends.append(end) }
                    })
            }
            state.withLock { state in
                state.history.tokens[number].begin = span
                state.history.tokens[number].refusal = task.record.refusal
                state.tasks.append(task)
                state.numbers.append(number)
            }
        }

        private func onSome<Result>(
            _ random: inout SeededGenerator, _ body: (BackgroundTask) -> Result,
            record: (inout TaskHistory.Token, Result, TaskHistory.Span) -> Void
        ) {
            let choice = Int.random(in: 0..<Self.tokens, using: &random)
            let found = state.withLock { state in state.tasks.indices.contains(choice) ? (state.tasks[choice], state.numbers[choice]) : nil }
            guard let (task, number) = found else { return }
            let (result, span) = span { body(task) }
            state.withLock { record(&$0.history.tokens[number], result, span) }
        }

        /// Ends all tasks by a last expiration, and returns the broken rules.
        func finish() -> (faults: [String], overlaps: Bool) {
            let (_, last) = span { registry.expireAndWait(.shutdown, within: .zero) }
            state.withLock { $0.history.sweeps.append(last) }
            for number in 0..<state.withLock({ $0.tasks.count }) {
                let (task, token) = state.withLock { ($0.tasks[number], $0.numbers[number]) }
                let (isActive, span) = span { task.isActive }
                state.withLock { $0.history.tokens[token].reads.append((span, isActive)) }
            }
            let history = state.withLock { $0.history }
            registry.detach()
            let overlaps = history.tokens.contains { token in
                token.ends.contains { end in history.sweeps.contains { $0.overlaps(end) } || history.closes.contains { $0.overlaps(end) } }
            }
            return (history.faults, overlaps)
        }
    }

    /// The calls of all histories. Each thread takes the next call, so that neighbours in the list run at the same time
    /// without a barrier.
    private final class Work: Sendable {
        private let recordings: [Recording], seed: UInt64
        private let next = Atomic(0)

        init(_ recordings: [Recording], seed: UInt64) { (self.recordings, self.seed) = (recordings, seed) }

        func run() {
            while true {
                let number = next.wrappingAdd(1, ordering: .relaxed).oldValue
                guard number < recordings.count * Recording.calls else { return }
                var random = SeededGenerator(seed: seed &+ UInt64(number) &* 0x9e37_79b9)
                recordings[number / Recording.calls].perform(&random)
            }
        }
    }

    /// Number of histories of a test; `PLIMSOLL_RUNS` multiplies them.
    private static let histories = 5000

    @Test(arguments: [2, 3, 4]) func `C23 C28 histories of tokens have an order: begin, end, expiration and shutdown`(threads: Int) async {
        let alarms = Alarms(time: .running, heartbeat: Heartbeat(time: .running)), handlers = HandlerThreads()
        for seed in seeds(0..<0) {
            let recordings = (0..<Self.histories).map { _ in Recording(alarms, handlers) }, work = Work(recordings, seed: seed)
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<threads {
                    group.addTask {
                        await withCheckedContinuation { done in
                            let isStarted = Thread.start("history") {
                                work.run()
                                done.resume()
                            }
                            if !isStarted { done.resume() }
                        }
                    }
                }
            }
            // Handlers of the last expirations may still be running.
            #expect(await until("all handlers have ended") { handlers.busy == 0 })
            let outcomes = recordings.map { $0.finish() }
            let wrong = outcomes.filter { !$0.faults.isEmpty }, overlapping = outcomes.count { $0.overlaps }
            print("figure histories.tokens.checked \(Self.histories) count")
            print("figure histories.tokens.overlapping \(overlapping) count")
            print("figure histories.tokens.wrong \(wrong.count) count")
            #expect(overlapping > 0)
            #expect(wrong.isEmpty, "seed \(seed): \(wrong.count) histories are wrong; the first: \(wrong.prefix(3))")
        }
    }
}

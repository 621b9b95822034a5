import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The thread of a worker: started late, stopped, replaced.
@Suite(.timeLimit(.minutes(5))) struct WorkerTests {
    private static let budget = Duration.seconds(5)

    /// A starter of threads that can refuse. Counts the threads that have ended.
    private final class Starter: Sendable {
        private let state = Mutex((isRefusing: true, started: 0, ended: 0))
        var started: Int { state.withLock { $0.started } }
        var ended: Int { state.withLock { $0.ended } }

        func relent() { state.withLock { $0.isRefusing = false } }

        func start(_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
            let isRefused = state.withLock { state in
                if !state.isRefusing { state.started += 1 }
                return state.isRefusing
            }
            guard !isRefused else { return false }
            return Thread.start(name) {
                body()
                self.state.withLock { $0.ended += 1 }
            }
        }
    }

    @Test(arguments: [true, false])
    func `a thread that could not be started is started at the next request or check`(isRequest: Bool) {
        let starter = Starter(), runs = Mutex(0)
        let worker = Worker("late", launch: starter.start) { _ in runs.withLock { $0 += 1 } }
        worker.start()
        worker.request()
        #expect(worker.replaceIfStuck(at: .zero, budget: Self.budget) == nil && starter.started == 0)
        starter.relent()
        if isRequest { worker.request() } else { _ = worker.replaceIfStuck(at: .zero, budget: Self.budget) }
        // The first request was not lost.
        blockUntil("a run") { runs.withLock { $0 } > 0 }
        worker.request()
        #expect(starter.started == 1)
        worker.stop()
    }

    @Test func `a stopped worker starts no thread any more`() {
        let starter = Starter()
        let worker = Worker("stopped", launch: starter.start) { _ in }
        worker.start()
        worker.stop()
        starter.relent()
        worker.request()
        #expect(worker.replaceIfStuck(at: .seconds(60), budget: Self.budget) == nil && starter.started == 0)
    }

    @Test func `a thread in a handler beyond the budget is replaced, and touches nothing afterwards`() {
        let starter = Starter(), handler = Parker(), calls = Mutex<[Bool]>([])
        let worker = Worker("stuck", launch: starter.start) { turn in
            let isFirst = calls.withLock { $0.isEmpty }
            let goesOn = turn.call(isFirst ? "slow" : "fast", at: .seconds(10)) {
                if isFirst {
                    calls.withLock { $0.append(true) }
                    handler.park()
                }
            }
            calls.withLock { $0.append(goesOn) }
        }
        starter.relent()
        worker.start()
        #expect(worker.timeUntilStuck(at: .seconds(10), budget: Self.budget) == nil)
        worker.request()
        blockUntil("the call") { worker.timeUntilStuck(at: .seconds(10), budget: Self.budget) != nil }
        #expect(worker.timeUntilStuck(at: .seconds(12), budget: Self.budget) == .seconds(3))
        #expect(worker.replaceIfStuck(at: .milliseconds(14_999), budget: Self.budget) == nil && starter.started == 1)
        #expect(worker.replaceIfStuck(at: .seconds(15), budget: Self.budget) == "slow" && starter.started == 2)
        // The new thread runs at once, in case of a missed request, and its call ends normally.
        blockUntil("the new thread's call") { calls.withLock { $0 } == [true, true] }
        #expect(worker.timeUntilStuck(at: .seconds(15), budget: Self.budget) == nil)
        handler.unpark()
        blockUntil("the old thread's return") { calls.withLock { $0 } == [true, true, false] }
        blockUntil("the old thread's end") { starter.ended == 1 }
        worker.stop()
    }
}

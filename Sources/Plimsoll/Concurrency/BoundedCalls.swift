import Synchronization

/// Calls handlers in parallel on threads of their own, and waits for them until a deadline.
package final class BoundedCalls: Sendable {
    /// A handler to call.
    package typealias Body = @Sendable () async throws -> Void

    package enum Outcome: Sendable, Hashable {
        case done
        case failed(String)
        /// The call has not ended so far.
        case late
    }

    private struct State {
        var outcomes: [Outcome]
        var left: Int
        var isOver = false
    }

    private let state: Mutex<State>
    private let parker = Parker()

    private init(_ count: Int) { state = Mutex(State(outcomes: Array(repeating: .late, count: count), left: count)) }

    /// Calls `bodies` and blocks until all have returned or `budget` of running time has passed. Do not call on the
    /// alarms' thread or in the cooperative pool.
    package static func run(
        _ bodies: [Body], within budget: Duration, alarms: Alarms, threads: HandlerThreads
    ) -> [Outcome] {
        let calls = BoundedCalls(bodies.count)
        for (index, body) in bodies.enumerated() {
            threads.run {
                do {
                    try await body()
                    calls.finish(index, .done)
                } catch {
                    calls.finish(index, .failed("\(error)"))
                }
            }
        }
        return calls.wait(budget, alarms)
    }

    /// Calls blocking bodies in the same way. Synchronous bodies never need a thread of the cooperative pool.
    package static func run(
        blocking bodies: [@Sendable () -> Void], within budget: Duration, alarms: Alarms, threads: HandlerThreads
    ) -> [Outcome] {
        let calls = BoundedCalls(bodies.count)
        for (index, body) in bodies.enumerated() {
            threads.run { () -> Void in
                body()
                calls.finish(index, .done)
            }
        }
        return calls.wait(budget, alarms)
    }

    private func finish(_ index: Int, _ outcome: Outcome) {
        state.withLock { state in
            state.outcomes[index] = outcome
            state.left -= 1
        }
        parker.unpark()
    }

    private func wait(_ budget: Duration, _ alarms: Alarms) -> [Outcome] {
        let alarm: Alarms.Alarm? =
            budget <= .zero
            ? nil
            : alarms.set(.deadline, after: budget) { [self] in
                state.withLock { $0.isOver = true }
                parker.unpark()
            }
        while alarm != nil, state.withLock({ $0.left > 0 && !$0.isOver }) { alarms.wait(on: parker) }
        alarm?.cancel()
        return state.withLock { $0.outcomes }
    }
}

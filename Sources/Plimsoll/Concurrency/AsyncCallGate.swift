import Synchronization

/// Lets asynchronous calls through until the gate is closed.
///
/// `close()` waits for the calls inside, except when called from within one of them.
package final class AsyncCallGate: Sendable {
    private struct State {
        var isClosed = false
        var calls = 0
        var waiting: [Parker] = []
    }

    /// The gates that enclose the current task.
    @TaskLocal private static var entered: [ObjectIdentifier] = []

    private let state = Mutex(State())

    package init() {}

    /// The gates that enclose the current task.
    static var around: [ObjectIdentifier] { entered }

    /// True if the current task runs within a handler.
    package static var isInside: Bool { !entered.isEmpty }

    /// True if the current task runs within a call through this gate.
    package var isEntered: Bool { Self.entered.contains(ObjectIdentifier(self)) }

    /// Runs `body` as if outside any handler. For a task that was created in a handler but outlives the handler.
    package static func outside(_ body: () async -> Void) async { await $entered.withValue([], operation: body) }

    /// Runs `body` unless the gate is closed.
    package func call(_ body: () async throws -> Void) async rethrows {
        let enters = state.withLock { state in
            if !state.isClosed { state.calls += 1 }
            return !state.isClosed
        }
        guard enters else { return }
        defer {
            let waiting = state.withLock { state in
                state.calls -= 1
                return state.calls == 0 ? state.waiting : []
            }
            for parker in waiting { parker.unpark() }
        }
        try await Self.$entered.withValue(Self.entered + [ObjectIdentifier(self)], operation: body)
    }

    package func close() {
        let isInside = isEntered
        let parker: Parker? = state.withLock { state in
            state.isClosed = true
            guard state.calls > 0, !isInside else { return nil }
            let parker = Parker()
            state.waiting.append(parker)
            return parker
        }
        guard let parker else { return }
        CloseWaits.wait(for: .init(self)) {
            while state.withLock({ $0.calls > 0 }) { parker.park() }
        }
    }
}

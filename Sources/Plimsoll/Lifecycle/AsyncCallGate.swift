import Synchronization

/// Lets asynchronous calls through until it is closed; whoever closes it waits for the calls inside, except from within one of them.
final class AsyncCallGate: Sendable {
    private struct State {
        var isClosed = false
        var calls = 0
        var waiting: [Parker] = []
    }

    /// The gates the present task is inside of.
    @TaskLocal private static var entered: [ObjectIdentifier] = []

    private let state = Mutex(State())

    /// The gates that the present task is inside of.
    static var around: [ObjectIdentifier] { entered }

    /// Whether the present task is within a handler.
    static var isInside: Bool { !entered.isEmpty }

    /// Runs `body` as if it were not within a handler: its task was made there, but goes on after it.
    static func outside(_ body: () async -> Void) async { await $entered.withValue([], operation: body) }

    /// Runs `body` unless closed.
    func call(_ body: () async throws -> Void) async rethrows {
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

    func close() {
        let isInside = Self.entered.contains(ObjectIdentifier(self))
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

import Synchronization

/// Something registered with a manager, until `cancel()`. Dropping it does not cancel.
public final class Registration: Sendable {
    private let close: @Sendable () -> Void
    private let remove: @Sendable () -> Void

    convenience init(_ gate: CallGate, remove: @escaping @Sendable () -> Void) { self.init(close: gate.close, remove: remove) }

    /// - Parameters:
    ///   - close: lets no more calls through and waits for those inside, except from within.
    ///   - remove: takes it off the list.
    init(close: @escaping @Sendable () -> Void, remove: @escaping @Sendable () -> Void) {
        self.close = close
        self.remove = remove
    }

    /// Ends it. What was registered is never called again once this has returned; a call in progress is waited for,
    /// except from within that very call, and where that call itself waits for the caller's: two calls that cancel each
    /// other do not wait for ever. Idempotent.
    public func cancel() {
        remove()
        close()
    }
}

/// Lets calls through until it is closed, one at a time; whoever closes it waits for the call inside.
final class CallGate: Sendable {
    private struct State {
        var isClosed = false
        /// The thread inside, or 0.
        var caller: UInt = 0
        /// When it went in, by the clock of who calls.
        var since = Duration.zero
        var waiting: [Parker] = []
    }

    private let state = Mutex(State())

    /// The thread inside, or 0.
    var caller: UInt { state.withLock { $0.caller } }

    /// Runs `body` unless closed or busy; false if it did not run. Allocates nothing.
    ///
    /// - Parameter now: for `timeInside`, where anybody asks for that.
    func call(at now: Duration = .zero, _ body: () -> Void) -> Bool {
        let entered = state.withLock { state in
            guard !state.isClosed, state.caller == 0 else { return false }
            (state.caller, state.since) = (Thread.current, now)
            return true
        }
        guard entered else { return false }
        body()
        let waiting = state.withLock { state in
            state.caller = 0
            return state.waiting
        }
        for parker in waiting { parker.unpark() }
        return true
    }

    /// Whether a call is inside now.
    var isBusy: Bool { state.withLock { $0.caller != 0 } }

    /// How long the call inside has taken so far; zero for none.
    func timeInside(at now: Duration) -> Duration { state.withLock { $0.caller == 0 ? .zero : now - $0.since } }

    func close() {
        let parker: Parker? = state.withLock { state in
            state.isClosed = true
            guard state.caller != 0, state.caller != Thread.current else { return nil }
            let parker = Parker()
            state.waiting.append(parker)
            return parker
        }
        guard let parker else { return }
        CloseWaits.wait(for: .init(self)) {
            while isBusy { parker.park() }
        }
    }
}

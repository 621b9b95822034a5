import Synchronization

/// A registration with a manager, in force until `cancel()`. Dropping the object does not cancel the registration.
public final class Registration: Sendable {
    private let close: @Sendable () -> Void
    private let remove: @Sendable () -> Void

    package convenience init(_ gate: CallGate, remove: @escaping @Sendable () -> Void) {
        self.init(close: gate.close, remove: remove)
    }

    /// - Parameters:
    ///   - close: closes the gate to new calls and waits for calls inside, except from within such a call.
    ///   - remove: removes the registered object from the list.
    package init(close: @escaping @Sendable () -> Void, remove: @escaping @Sendable () -> Void) {
        self.close = close
        self.remove = remove
    }

    /// Ends the registration. After `cancel()` returned, the registered object is never called again. `cancel()`
    /// waits for a call in progress, with two exceptions: from within that very call, and if that call in turn
    /// waits for the caller's call. Two calls that cancel each other therefore do not deadlock. Idempotent.
    public func cancel() {
        remove()
        close()
    }
}

/// A gate that admits one call at a time until closed. The closing thread waits for the call inside.
package final class CallGate: Sendable {
    private struct State {
        var isClosed = false
        /// The thread inside, or 0.
        var caller: UInt = 0
        /// Time at which the call entered, on the caller's clock.
        var since = Duration.zero
        var waiting: [Parker] = []
    }

    private let state = Mutex(State())

    package init() {}

    /// The thread inside, or 0.
    var caller: UInt { state.withLock { $0.caller } }

    /// Runs `body` unless the gate is closed or busy. Returns false if `body` did not run. Allocates nothing.
    ///
    /// - Parameter now: current time, needed only for `timeInside`.
    package func call(at now: Duration = .zero, _ body: () -> Void) -> Bool {
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

    /// True once the gate admits no call any more.
    var isClosed: Bool { state.withLock { $0.isClosed } }

    /// True if a call is inside now.
    package var isBusy: Bool { state.withLock { $0.caller != 0 } }

    /// Returns the duration of the call inside so far; zero if there is none.
    func timeInside(at now: Duration) -> Duration { state.withLock { $0.caller == 0 ? .zero : now - $0.since } }

    package func close() {
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

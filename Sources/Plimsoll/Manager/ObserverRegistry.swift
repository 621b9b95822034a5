import Synchronization

/// The observers of level changes, and delivery to them on the delivery worker.
///
/// A delivery iterates over a snapshot. The gate of a cancelled observer skips that observer (T1). An observer that
/// blocks is named in a report and bypassed: a replacement thread serves the others. The blocked observer receives
/// the newest event it missed when it returns.
package final class ObserverRegistry: Sendable {
    final class Observer: Sendable {
        let name: String
        let gate = CallGate()
        private let threshold: PressureLevel
        private let body: @Sendable (PressureEvent) -> Void
        /// Identifier of the newest event for this observer, and the event if it is not delivered yet.
        private let newest = Mutex<(id: UInt64, undelivered: PressureEvent?)>((0, nil))

        init(_ name: String, _ threshold: PressureLevel, _ body: @escaping @Sendable (PressureEvent) -> Void) {
            self.name = name
            self.threshold = threshold
            self.body = body
        }

        /// Delivers `event` if it is newer than the last one. If the observer is inside a call on another thread,
        /// that thread delivers the newest missed event afterwards: an observer that was slow in a shortage must
        /// learn of the recovery. Allocates nothing.
        func receive(_ event: PressureEvent) {
            newest.withLock { newest in
                guard event.id > newest.id else { return }
                newest = (event.id, event.level >= threshold ? event : nil)
            }
            while newest.withLock({ $0.undelivered != nil }), gate.call({ takeUndelivered().map(body) }) {}
        }

        private func takeUndelivered() -> PressureEvent? {
            newest.withLock { exchange(&$0.undelivered, nil) }
        }
    }

    private struct State {
        var observers: [Observer] = []
        /// Event to deliver next. A newer event replaces one that waits.
        var waiting: PressureEvent?
        /// Number of events that a newer event replaced.
        var superseded = 0
        var current: (event: PressureEvent, to: [Observer], next: Int)?
    }

    private let state = Mutex(State())

    /// Registers an observer of levels from `threshold` on. `isFirst` puts the observer before all others.
    package func observe(
        _ threshold: PressureLevel, _ name: String, isFirst: Bool = false,
        _ body: @escaping @Sendable (PressureEvent) -> Void
    ) -> Registration {
        let observer = Observer(name, threshold, body)
        add(observer, first: isFirst)
        return Registration(observer.gate) { [self] in remove(observer) }
    }

    /// - Parameter first: true to deliver to this observer before all others.
    func add(_ observer: Observer, first: Bool = false) {
        state.withLock { $0.observers.insert(observer, at: first ? 0 : $0.observers.endIndex) }
    }

    func remove(_ observer: Observer) {
        let removed = state.withLock { $0.observers.remove(identicalTo: observer) }
        withExtendedLifetime(removed) {}
    }

    var count: Int { state.withLock { $0.observers.count } }

    /// Makes `event` the next to be delivered.
    func post(_ event: PressureEvent) {
        state.withLock { state in
            if state.waiting != nil { state.superseded += 1 }
            state.waiting = event
        }
    }

    /// Number of events that observers never received.
    var superseded: Int { state.withLock { $0.superseded } }

    /// Delivers until no event waits. Runs on the delivery worker. Returns false if the thread was replaced
    /// meanwhile.
    func deliver(_ turn: Worker.Turn, time: Timekeeper) -> Bool {
        while let (observer, event) = next() {
            guard turn.call(observer.name, at: time.elapsed(), { observer.receive(event) }) else { return false }
        }
        return true
    }

    private func next() -> (Observer, PressureEvent)? {
        // Destroy a finished delivery outside the lock: its observers may be released with the snapshot.
        let (found, finished) = state.withLock { state in
            let finished = state.current
            if finished.map({ $0.next >= $0.to.count }) ?? true {
                state.current = state.waiting.map { ($0, state.observers, 0) }
                state.waiting = nil
            }
            guard let current = state.current, current.next < current.to.count else {
                return (nil as (Observer, PressureEvent)?, finished)
            }
            state.current?.next += 1
            return ((current.to[current.next], current.event), finished)
        }
        withExtendedLifetime(finished) {}
        return found
    }
}

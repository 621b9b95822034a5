import Synchronization

/// Who hears of changes of level, and the delivery to them on a thread of its own.
///
/// A delivery iterates over a snapshot; a cancelled observer in it is skipped by its gate (T1). One that blocks is named
/// and gone around: the others are served by the thread that takes over, and it hears what it missed when it returns.
final class ObserverRegistry: Sendable {
    final class Observer: Sendable {
        let name: String
        let gate = CallGate()
        private let threshold: PressureLevel
        private let body: @Sendable (PressureEvent) -> Void
        /// The newest event it is to hear, and whether it has yet to.
        private let newest = Mutex<(id: UInt64, untold: PressureEvent?)>((0, nil))

        init(_ name: String, _ threshold: PressureLevel, _ body: @escaping @Sendable (PressureEvent) -> Void) {
            self.name = name
            self.threshold = threshold
            self.body = body
        }

        /// Calls it with `event` if that is news to it. If it is inside a call on another thread, that thread calls it again afterwards, with the newest it
        /// missed: who was slow in a shortage must hear that it is over. Allocates nothing.
        func hear(_ event: PressureEvent) {
            newest.withLock { newest in
                guard event.id > newest.id else { return }
                newest = (event.id, event.level >= threshold ? event : nil)
            }
            while newest.withLock({ $0.untold != nil }), gate.call({ takeUntold().map(body) }) {}
        }

        private func takeUntold() -> PressureEvent? {
            newest.withLock { newest in
                defer { newest.untold = nil }
                return newest.untold
            }
        }
    }

    private struct State {
        var observers: [Observer] = []
        /// What is being delivered to whom. The newest event wins over one that waits.
        var waiting: PressureEvent?
        /// Events that a newer one took the place of.
        var superseded = 0
        var current: (event: PressureEvent, to: [Observer], next: Int)?
    }

    private let state = Mutex(State())

    /// - Parameter first: before all others.
    func add(_ observer: Observer, first: Bool = false) {
        state.withLock { $0.observers.insert(observer, at: first ? 0 : $0.observers.endIndex) }
    }

    func remove(_ observer: Observer) {
        let removed = state.withLock { state in
            state.observers.firstIndex { $0 === observer }.map { state.observers.remove(at: $0) }
        }
        withExtendedLifetime(removed) {}
    }

    var isEmpty: Bool { state.withLock { $0.observers.isEmpty } }
    var count: Int { state.withLock { $0.observers.count } }

    /// Makes `event` the next to be delivered.
    func post(_ event: PressureEvent) {
        state.withLock { state in
            if state.waiting != nil { state.superseded += 1 }
            state.waiting = event
        }
    }

    /// How many events observers have not heard of.
    var superseded: Int { state.withLock { $0.superseded } }

    /// Delivers until nothing waits. Runs on the delivery worker; false if its thread was replaced meanwhile.
    func deliver(_ turn: Worker.Turn, time: Timekeeper) -> Bool {
        while let (observer, event) = next() {
            guard turn.call(observer.name, at: time.elapsed(), { observer.hear(event) }) else { return false }
        }
        return true
    }

    private func next() -> (Observer, PressureEvent)? {
        // A finished delivery leaves the lock before its observers may die.
        let (found, finished) = state.withLock { state in
            let finished = state.current
            if finished.map({ $0.next >= $0.to.count }) ?? true {
                state.current = state.waiting.map { ($0, state.observers, 0) }
                state.waiting = nil
            }
            guard let current = state.current, current.next < current.to.count else { return (nil as (Observer, PressureEvent)?, finished) }
            state.current?.next += 1
            return ((current.to[current.next], current.event), finished)
        }
        withExtendedLifetime(finished) {}
        return found
    }
}

import Plimsoll
import Synchronization

/// The handlers that take part in the steps of one unit.
final class LifecycleObservers: Sendable {
    typealias Step = UndoPair.Step

    /// The handlers of one registration.
    final class Observer: Sendable {
        let name: String
        let origin: String
        let gate = AsyncCallGate()
        /// The action on leaving the front, and its inverse on coming back.
        let resign: UndoPair
        /// The action on entering the background, and its inverse on leaving.
        let retreat: UndoPair

        init(_ name: String, _ origin: String, resign: UndoPair, retreat: UndoPair) {
            self.name = name
            self.origin = origin
            self.resign = resign
            self.retreat = retreat
        }
    }

    /// A handler without an inverse.
    final class Hook: Sendable {
        let name: String
        let origin: String
        let gate = AsyncCallGate()
        let body: Step

        init(_ name: String, _ origin: String, _ body: @escaping Step) {
            self.name = name
            self.origin = origin
            self.body = body
        }
    }

    /// The occasions for calling a hook.
    enum Occasion: Int, CaseIterable { case resume, terminate, comeBack }

    private struct State {
        var observers: [Observer] = []
        /// True if the last step that called `resign` led away from the front. A late observer follows these two.
        var hasResigned = true
        /// True if the last step that called `retreat` led into the background.
        var hasRetreated = false
        var hooks = [[Hook]](repeating: [], count: Occasion.allCases.count)
    }

    private let state = Mutex(State())
    /// Marks the handlers of this unit. Never closed.
    private let gate = AsyncCallGate()

    /// True if the current task runs within a handler of this unit.
    var areEntered: Bool { gate.isEntered }

    /// Adds an observer, which counts as having taken the steps so far. The observer takes part in a step in progress
    /// unless the handlers of the step were listed before.
    func add(_ observer: Observer) -> Registration {
        state.withLock { state in
            observer.resign.assume(isDone: state.hasResigned)
            observer.retreat.assume(isDone: state.hasRetreated)
            state.observers.append(observer)
        }
        return Registration(close: observer.gate.close) { [weak self] in
            let removed = self?.state.withLock { $0.observers.remove(identicalTo: observer) }
            withExtendedLifetime(removed) {}
        }
    }

    func add(_ hook: Hook, at occasion: Occasion) -> Registration {
        state.withLock { $0.hooks[occasion.rawValue].append(hook) }
        return Registration(close: hook.gate.close) { [weak self] in
            let removed = self?.state.withLock { $0.hooks[occasion.rawValue].remove(identicalTo: hook) }
            withExtendedLifetime(removed) {}
        }
    }

    /// Returns the handlers to call for `transition`, and their order.
    func handlers(for transition: LifecycleTransition, _ context: LifecycleContext) -> (FanOut.Order, [FanOut.Handler])
    {
        switch (transition.from, transition.to) {
        case (.active, .inactive): return (.forward, pairs(\.resign, \.hasResigned, to: true, context))
        case (.inactive, .background): return (.forward, pairs(\.retreat, \.hasRetreated, to: true, context))
        case (.background, .inactive): return (.reverse, pairs(\.retreat, \.hasRetreated, to: false, context))
        case (.inactive, .active): return (.reverse, pairs(\.resign, \.hasResigned, to: false, context))
        case (.notRunning, .background):
            // No foreground work was set up, so leaving the background is still to come (C16).
            for observer in observers(\.hasRetreated, true) { observer.retreat.assume(isDone: true) }
            return (.forward, [])
        case (.suspended, .background): return (.forward, hooks(.resume, context))
        case (_, .notRunning): return (.forward, hooks(.terminate, context))
        default: return (.forward, [])
        }
    }

    func hooks(_ occasion: Occasion, _ context: LifecycleContext) -> [FanOut.Handler] {
        state.withLock { $0.hooks[occasion.rawValue] }.map { hook in
            FanOut.Handler(name: hook.name, origin: hook.origin) { [gate] in
                try await gate.call { try await hook.gate.call { try await hook.body(context) } }
            }
        }
    }

    private func pairs(
        _ pair: any KeyPath<Observer, UndoPair> & Sendable, _ mark: WritableKeyPath<State, Bool>, to isWanted: Bool,
        _ context: LifecycleContext
    ) -> [FanOut.Handler] {
        observers(mark, isWanted).filter { !$0[keyPath: pair].isEmpty }.map { observer in
            FanOut.Handler(name: observer.name, origin: observer.origin) { [gate] in
                try await gate.call {
                    try await observer.gate.call { try await observer[keyPath: pair].move(to: isWanted, context) }
                }
            }
        }
    }

    /// Returns the observers to call, and sets `mark` for observers that come later.
    private func observers(_ mark: WritableKeyPath<State, Bool>, _ isDone: Bool) -> [Observer] {
        state.withLock { state in
            state[keyPath: mark] = isDone
            return state.observers
        }
    }
}

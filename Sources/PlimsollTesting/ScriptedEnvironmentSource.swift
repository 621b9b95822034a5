package import Plimsoll
package import PlimsollLifecycle
import Synchronization

/// An environment source that a test controls.
package final class ScriptedEnvironmentSource: EnvironmentSource {
    private struct State {
        var sink: (@Sendable (EnvironmentChange.Kind, Int) -> Void)?
        var values: [EnvironmentChange.Kind: EnvironmentValue] = [:]
        var watched: [EnvironmentChange.Kind: Int] = [:]
        var waiting: [(EnvironmentChange.Kind, Int)] = []
        var isSilent = false
    }

    private let state = Mutex(State())

    /// Creates a source in which every kind can be watched, and is `absent`.
    package init() {}

    /// Sets the value of `kind` and sends one raw event, unless the source is silent.
    package func set(_ kind: EnvironmentChange.Kind, _ value: EnvironmentValue?) {
        let sink = state.withLock { state -> (@Sendable (EnvironmentChange.Kind, Int) -> Void)? in
            state.values[kind] = value
            guard state.watched[kind] != nil else { return nil }
            if state.isSilent { state.waiting.append((kind, 1)) }
            return state.isSilent ? nil : state.sink
        }
        sink?(kind, 1)
    }

    /// Sets whether events wait for `collect()` from now on, as events do while a process is frozen.
    package func setSilent(_ isSilent: Bool) { state.withLock { $0.isSilent = isSilent } }

    package var watched: Set<EnvironmentChange.Kind> { state.withLock { Set($0.watched.keys) } }

    package func start(_ sink: @escaping @Sendable (EnvironmentChange.Kind, Int) -> Void) {
        state.withLock { $0.sink = sink }
    }

    package func watch(_ kind: EnvironmentChange.Kind) -> Bool {
        state.withLock { $0.watched[kind, default: 0] += 1 }
        return true
    }

    package func unwatch(_ kind: EnvironmentChange.Kind) {
        state.withLock { state in
            guard let count = state.watched[kind] else { preconditionFailure("\(kind) is not watched") }
            state.watched[kind] = count > 1 ? count - 1 : nil
        }
    }

    package func collect() {
        let (waiting, sink) = state.withLock { state in
            defer { state.waiting = [] }
            return (state.waiting, state.sink)
        }
        for (kind, events) in waiting { sink?(kind, events) }
    }

    package func read(_ kind: EnvironmentChange.Kind) -> EnvironmentValue? {
        state.withLock { $0.values[kind] ?? .absent }
    }

    package var signals: [Capabilities.Signal] {
        watched.isEmpty ? [] : [Capabilities.Signal("environment", isLive: true, "set by a test")]
    }
}

import Synchronization

/// Passes a ladder's `suspend` action on to a supervisor.
///
/// One link at a time carries the request, the one opened last. No call here blocks, because the pressure loop
/// calls this type.
final class StandstillRequest: Sendable {
    private struct State {
        var number: UInt64 = 0
        var ask: (@Sendable () -> String?)?
    }

    private let state = Mutex(State())

    /// Sets `ask` as the current link. The pressure loop calls `ask`, which must not block. `ask` returns `nil` if
    /// a supervisor was asked, else the reason why none can be asked.
    func connect(_ ask: @escaping @Sendable () -> String?) -> Registration {
        let (number, former) = state.withLock { state in
            defer { state.ask = ask }
            state.number += 1
            return (state.number, state.ask)
        }
        withExtendedLifetime(former) {}
        return Registration(close: {}) { [weak self] in
            let gone = self?.state.withLock { state in
                guard state.number == number else { return nil as (@Sendable () -> String?)? }
                defer { state.ask = nil }
                return state.ask
            }
            withExtendedLifetime(gone) {}
        }
    }

    /// Asks a supervisor to freeze this process. Returns `nil` if a supervisor was asked, else the reason why not.
    func ask() -> String? {
        guard let ask = state.withLock({ $0.ask }) else {
            return "this process has no link to a supervisor that could make it stand still: it stays quiesced"
        }
        return ask()
    }
}

extension ResourceManager {
    /// Passes a ladder's `suspend` action to `ask`, until the registration is cancelled. `ask` returns `nil` if a
    /// supervisor was asked, else the reason why none can be asked. The pressure loop calls `ask`, which must
    /// neither block nor allocate.
    package func carryStandstill(_ ask: @escaping @Sendable () -> String?) -> Registration {
        parts.standstill.connect(ask)
    }
}

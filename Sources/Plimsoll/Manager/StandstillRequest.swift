import Synchronization

/// The way on which a ladder's `suspend` reaches a supervisor.
///
/// One link at a time carries it, the one that was opened last. Nothing here waits: the loop calls it.
final class StandstillRequest: Sendable {
    private struct State {
        var number: UInt64 = 0
        var ask: (@Sendable () -> String?)?
    }

    private let state = Mutex(State())

    /// Has `ask` called by the pressure loop, which it must not keep; it returns why nobody can be asked, and `nil` if somebody is.
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

    /// Asks for this process to be made to stand still; why nobody could be asked, `nil` if somebody was.
    func ask() -> String? {
        guard let ask = state.withLock({ $0.ask }) else {
            return "this process has no link to a supervisor that could make it stand still: it stays quiesced"
        }
        return ask()
    }
}

extension ResourceManager {
    /// Has a ladder's `suspend` passed on by `ask`, until the registration is cancelled. It returns why no supervisor can be asked, and `nil` if one is; it is
    /// called on the pressure loop and must neither block nor allocate.
    package func carryStandstill(_ ask: @escaping @Sendable () -> String?) -> Registration { parts.standstill.connect(ask) }
}

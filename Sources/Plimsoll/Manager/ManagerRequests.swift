import CPlimsollProcess
import Synchronization

/// A simulation requested by the environment variable `PLIMSOLL_SIMULATE`: a level, a colon, and a duration. The
/// simulation begins when the manager runs (C84).
///
///     PLIMSOLL_SIMULATE=critical:5s  ./server
struct SimulationRequest: Sendable, Hashable {
    static let variable = "PLIMSOLL_SIMULATE"

    let level: PressureLevel
    let duration: Duration

    /// - Throws: `ResourceManagerError` if `text` is invalid; the error lists the allowed forms.
    init(_ text: String) throws(ResourceManagerError) {
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        let level = PressureLevel(name: parts[0])
        guard parts.count == 2, let level, parts[1].last?.isLetter == true,
            let duration = Duration(plimsoll: parts[1]), duration > .zero
        else {
            throw ResourceManagerError(
                description:
                    "\(Self.variable) is \"\(text)\"; allowed is LEVEL:DURATION, with LEVEL warning, critical or normal, and DURATION such as 500ms, 5s or 2m"
            )
        }
        (self.level, self.duration) = (level, duration)
    }

    /// Returns the value of an environment variable; `nil` if the variable is not set.
    static func environment(_ name: String) -> String? { plimsoll_environment(name).map { String(cString: $0) } }
}

/// A boolean environment variable by which an operator controls a manager.
enum ManagerSwitch: String {
    case enabled = "PLIMSOLL_ENABLED"
    case dryRun = "PLIMSOLL_DRY_RUN"

    /// Returns the value of the variable; `nil` if the variable is not set or empty.
    ///
    /// - Throws: `ResourceManagerError` if the value is neither true nor false; the error lists the allowed words.
    func value(_ environment: (String) -> String?) throws(ResourceManagerError) -> Bool? {
        guard let text = environment(rawValue), !text.isEmpty else { return nil }
        if let value = Bool(plimsoll: text) { return value }
        throw ResourceManagerError(
            description: "\(rawValue) is \"\(text)\"; allowed are true, yes, on, 1, and false, no, off, 0")
    }
}

extension Bool {
    /// Parses an operator's boolean: `true yes on 1` or `false no off 0`, in upper or lower case.
    package init?(plimsoll text: String) {
        switch text.lowercased() {
        case "true", "yes", "on", "1": self = true
        case "false", "no", "off", "0": self = false
        default: return nil
        }
    }
}

/// Passes a ladder's `suspend` action on to a supervisor.
///
/// One link at a time carries the request, the one opened last. No call here blocks, because the pressure loop
/// calls this type.
final class SuspensionRequest: Sendable {
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
                return exchange(&state.ask, nil)
            }
            withExtendedLifetime(gone) {}
        }
    }

    /// Asks a supervisor to freeze this process. Returns `nil` if a supervisor was asked, else the reason why not.
    func ask() -> String? {
        guard let ask = state.withLock({ $0.ask }) else {
            return "the process has no link to a supervisor that could suspend it; it stays quiesced"
        }
        return ask()
    }
}

extension ResourceManager {
    /// Passes a ladder's `suspend` action to `ask`, until the registration is cancelled. `ask` returns `nil` if a
    /// supervisor was asked, else the reason why none can be asked. The pressure loop calls `ask`, which must
    /// neither block nor allocate.
    package func onSuspensionRequest(_ ask: @escaping @Sendable () -> String?) -> Registration {
        parts.suspension.connect(ask)
    }

    /// The notice that background work begins, of the process and of scenes.
    package var workNotice: WorkNotice { parts.tasks.notice }

    /// Registers the hook of a supervisor's link, which is called while the notice is armed.
    package func onWork(_ tell: @escaping @Sendable () -> Void) -> Registration { workNotice.connect(tell) }
}

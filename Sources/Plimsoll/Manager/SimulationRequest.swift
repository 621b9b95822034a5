import CPlimsollProcess

/// A rehearsal asked for from outside, by the environment variable `PLIMSOLL_SIMULATE`: a level, a colon, and how long. It begins when the manager runs (C84).
///
///     PLIMSOLL_SIMULATE=critical:5s  ./server
struct SimulationRequest: Sendable, Hashable {
    static let variable = "PLIMSOLL_SIMULATE"

    let level: PressureLevel
    let duration: Duration

    /// - Throws: if `text` is no such request, with what is allowed.
    init(_ text: String) throws(ResourceManagerError) {
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        let level = PressureLevel.allCases.first { "\($0)" == parts[0] }
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

    /// The value of an environment variable; `nil` if there is none.
    static func environment(_ name: String) -> String? { plimsoll_environment(name).map { String(cString: $0) } }
}

/// A word of the operator's about a manager, true or false.
enum ManagerSwitch: String {
    case enabled = "PLIMSOLL_ENABLED"
    case dryRun = "PLIMSOLL_DRY_RUN"

    /// What the variable says; `nil` if it isn't set or empty.
    ///
    /// - Throws: if it says neither, with what is allowed.
    func value(_ environment: (String) -> String?) throws(ResourceManagerError) -> Bool? {
        guard let text = environment(rawValue), !text.isEmpty else { return nil }
        if let value = Bool(plimsoll: text) { return value }
        throw ResourceManagerError(description: "\(rawValue) is \"\(text)\"; allowed are true, yes, on, 1, and false, no, off, 0")
    }
}

extension Bool {
    /// From a word of an operator's: `true yes on 1`, or `false no off 0`, in either case.
    package init?(plimsoll text: String) {
        switch text.lowercased() {
        case "true", "yes", "on", "1": self = true
        case "false", "no", "off", "0": self = false
        default: return nil
        }
    }
}

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
        guard parts.count == 2, let level, let duration = Self.duration(parts[1]) else {
            throw ResourceManagerError(
                description:
                    "\(Self.variable) is \"\(text)\"; allowed is LEVEL:DURATION, with LEVEL warning, critical or normal, and DURATION such as 500ms, 5s or 2m"
            )
        }
        (self.level, self.duration) = (level, duration)
    }

    private static func duration(_ text: Substring) -> Duration? {
        let digits = text.prefix { $0.isASCII && $0.isNumber }
        guard let number = Int64(digits), number > 0, number <= 1_000_000_000 else { return nil }
        switch text.dropFirst(digits.count) {
        case "ms": return .milliseconds(number)
        case "s": return .seconds(number)
        case "m": return .seconds(number * 60)
        default: return nil
        }
    }

    /// The value of an environment variable; `nil` if there is none.
    static func environment(_ name: String) -> String? { plimsoll_environment(name).map { String(cString: $0) } }
}

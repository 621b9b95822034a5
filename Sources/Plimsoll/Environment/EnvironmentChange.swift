/// Something outside the program's own memory that changed: the net of all that happened to it since it was last told of (C59).
public struct EnvironmentChange: Sendable, Hashable {
    /// What changed. Changes of one kind are merged; those of different kinds never.
    public enum Kind: Sendable, Hashable {
        /// The wall clock was set.
        case clock
        /// The time zone's name, rules, or present distance from UTC.
        case timeZone
        /// The date, at midnight of the time zone or by setting the clock.
        case day
        /// The locale that the machine, a configuration file, or `Lifecycle.setLocale` names.
        case locale
        /// What the file at that path says.
        case file(String)
        /// The smallest memory limit on the process.
        case limit
        /// The credentials of that tag: revoked, or given anew.
        case credentials(String)
        /// Whether what is kept encrypted can be reached.
        case protectedData
        /// Which devices of that subsystem there are.
        case device(String)
        /// Where the power comes from and for how long, or that the machine is about to be taken away.
        case power
        /// Anything else.
        case custom(String)
    }

    /// What changed.
    public var kind: Kind
    /// What held before; `nil` if that isn't known, or if there is nothing to be told but that it happened.
    public var from: EnvironmentValue?
    /// What holds now; `nil` if there is nothing to be told but that it happened.
    public var to: EnvironmentValue?
    /// How many raw events were merged into it, at least 1. The kernel may have merged some before they were counted.
    public var count: Int

    /// A change of `kind`.
    public init(_ kind: Kind, from: EnvironmentValue? = nil, to: EnvironmentValue? = nil, count: Int = 1) {
        self.kind = kind
        self.from = from
        self.to = to
        self.count = max(1, count)
    }
}

extension EnvironmentChange {
    /// Whether it tells only that something happened. Such facts don't cancel each other out.
    var isBareFact: Bool { from == nil && to == nil }

    /// Whether anything is different in the end.
    var isNet: Bool {
        guard !isBareFact, let from, let to else { return isBareFact || from != to }
        return !from.isSame(as: to)
    }

    /// Takes in `later` of the same kind: what held first, what holds last.
    mutating func merge(_ later: EnvironmentChange) {
        count = count.addingReportingOverflow(later.count).overflow ? .max : count + later.count
        if isBareFact {
            from = later.from
        } else if let before = later.from {
            // Only what `from` left open: what it knew is older.
            from = from?.over(before)
        }
        if let now = later.to { to = now.over(to) }
    }
}

extension EnvironmentChange.Kind: CustomStringConvertible {
    public var description: String {
        switch self {
        case .clock: "clock"
        case .timeZone: "time zone"
        case .day: "day"
        case .locale: "locale"
        case .file(let path): "file \(path)"
        case .limit: "limit"
        case .credentials(let tag): "credentials \(tag)"
        case .protectedData: "protected data"
        case .device(let subsystem): "devices \(subsystem)"
        case .power: "power"
        case .custom(let name): name
        }
    }
}

extension EnvironmentChange: CustomStringConvertible {
    public var description: String {
        let values = isBareFact ? "" : ": \(from.map { "\($0)" } ?? "unknown") → \(to.map { "\($0)" } ?? "unknown")"
        return "\(kind)\(values)\(count > 1 ? " (\(count) events)" : "")"
    }
}

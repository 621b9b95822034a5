import Plimsoll

/// A change outside the program's own memory. Holds the net effect of all events since the last delivery (C59).
public struct EnvironmentChange: Sendable, Hashable {
    /// The kind of change. Changes of one kind are merged; changes of different kinds never are.
    public enum Kind: Sendable, Hashable {
        /// The wall clock was set.
        case clock
        /// The time zone's name, rules, or present distance from UTC.
        case timeZone
        /// The date, at midnight of the time zone or by setting the clock.
        case day
        /// The locale that the machine, a configuration file, or `Lifecycle.setLocale` names.
        case locale
        /// The content of the file at that path.
        case file(String)
        /// The smallest memory limit on the process.
        case limit
        /// The credentials of that tag: revoked, or issued anew.
        case credentials(String)
        /// Availability of data that is kept encrypted.
        case protectedData
        /// The set of devices of that subsystem.
        case device(String)
        /// The power source and remaining charge, or a notice that the machine is about to be taken away.
        case power
        /// Any other change.
        case custom(String)
    }

    /// The kind of change.
    public var kind: Kind
    /// The value before; `nil` if unknown, or for a bare fact.
    public var from: EnvironmentValue?
    /// The value now; `nil` for a bare fact.
    public var to: EnvironmentValue?
    /// Number of raw events merged, at least 1. The kernel may have merged some before they were counted.
    public var count: Int

    /// Creates a change of `kind`.
    public init(_ kind: Kind, from: EnvironmentValue? = nil, to: EnvironmentValue? = nil, count: Int = 1) {
        self.kind = kind
        self.from = from
        self.to = to
        self.count = max(1, count)
    }
}

extension EnvironmentChange {
    /// True if the change only reports that an event happened. Such facts don't cancel each other out.
    var isBareFact: Bool { from == nil && to == nil }

    /// True if the change has a net effect.
    package var isNet: Bool {
        guard !isBareFact, let from, let to else { return isBareFact || from != to }
        return !from.isSame(as: to)
    }

    /// Merges `later`, a change of the same kind: keeps the first `from` and the last `to`.
    package mutating func merge(_ later: EnvironmentChange) {
        count = count.addingReportingOverflow(later.count).overflow ? .max : count + later.count
        if isBareFact {
            from = later.from
        } else if let before = later.from {
            // Fills only the unset parts of `from`: the parts already set are older.
            from = from?.over(before)
        }
        if let now = later.to { to = now.over(to) }
    }
}

extension EnvironmentChange.Kind {
    /// True if a source may know this kind. Other kinds are only posted.
    package var isRead: Bool {
        switch self {
        case .clock, .timeZone, .day, .locale, .file, .device, .power: true
        case .limit, .credentials, .protectedData, .custom: false
        }
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

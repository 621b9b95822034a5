/// How the run before this one ended, as far as it could say (C24).
public enum PreviousRun: String, Sendable, Hashable, CaseIterable {
    /// There was none.
    case none
    /// It terminated in good order.
    case clean
    /// It ended without a word after it had come up: killed, crashed, or the machine went down.
    case crashed
    /// It ended without a word before it had come up (T36).
    case failedLaunch
    /// Whoever runs the service ended it by hand, and said so.
    case killedByOperator
    /// What it left cannot be read, or launches are not counted.
    case unknown
}

/// What became of preserved state at launch (C42).
public struct RestoreOutcome: Sendable, Hashable {
    /// What became of the state of one name.
    public enum Result: Sendable, Hashable {
        /// It is as it was last saved.
        case restored
        /// Nothing was kept.
        case none
        /// What was kept is not used, for this reason, and lies aside.
        case cleanStart(reason: String)
    }

    /// How the run before this one ended.
    public var previousRun: PreviousRun
    /// Why nothing at all was restored; `nil` if that was not decided for all.
    public var cleanStartReason: String?
    /// What became of each name, in the order in which they were registered.
    public var items: [Item]
    /// What went wrong besides, without keeping the process from launching.
    public var problems: [String]

    /// One name.
    public struct Item: Sendable, Hashable {
        /// The name given to `preserve`.
        public var name: String
        /// What became of it.
        public var result: Result
    }

    /// What became of `name`; `nil` if nothing of that name is preserved.
    public subscript(name: String) -> Result? { items.last { $0.name == name }?.result }
}

/// State that was not saved when it should have been.
public struct PreservationFailure: Error, Sendable, Hashable, CustomStringConvertible {
    /// The name given to `preserve`.
    public var name: String
    /// Why it was not saved, and what holds instead.
    public var reason: String

    public var description: String { "the state \"\(name)\" was not saved: \(reason)" }
}

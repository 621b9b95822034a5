/// The end of the previous run, as far as recorded (C24).
public enum PreviousRun: String, Sendable, Hashable, CaseIterable {
    /// There was no previous run.
    case none
    /// The run terminated in good order.
    case clean
    /// The run ended without notice after it had come up: killed, crashed, or the machine went down.
    case crashed
    /// The run ended without notice before it had come up (T36).
    case failedLaunch
    /// An operator ended the run by hand, and left a mark.
    case killedByOperator
    /// The record cannot be read, or launches are not counted.
    case unknown
}

/// The result of restoring preserved state at launch (C42).
public struct RestoreOutcome: Sendable, Hashable {
    /// The result for the state of one name.
    public enum Result: Sendable, Hashable {
        /// The state is as last saved.
        case restored
        /// No state was stored.
        case none
        /// The stored state is not used, for this reason, and was set aside.
        case cleanStart(reason: String)
    }

    /// The end of the previous run.
    public var previousRun: PreviousRun
    /// The reason for restoring no state at all; `nil` if each state was restored separately.
    public var cleanStartReason: String?
    /// The result for each name, in the order of registration.
    public var items: [Item]
    /// Other problems, which did not keep the process from launching.
    public var problems: [String]

    /// The result for one name.
    public struct Item: Sendable, Hashable {
        /// The name given to `preserve`.
        public var name: String
        /// The result for that name.
        public var result: Result
    }

    /// Returns the result for `name`; `nil` if no state of that name is preserved.
    public subscript(name: String) -> Result? { items.last { $0.name == name }?.result }
}

/// State that was not saved when required.
public struct PreservationFailure: Error, Sendable, Hashable, CustomStringConvertible {
    /// The name given to `preserve`.
    public var name: String
    /// The reason why the state was not saved, and the state in force instead.
    public var reason: String

    public var description: String { "the state \"\(name)\" was not saved: \(reason)" }
}

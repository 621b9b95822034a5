/// Where state is kept from one run of a process to the next: bytes by name.
///
/// Three requirements make a store; the others have defaults made of these. All may be called from any thread, and may block for as long as the
/// medium takes.
public protocol StateStore: Sendable {
    /// Puts `bytes` in the place of what is kept under `name`. Afterwards they survive the end of the process; after an error, and whenever the
    /// process is killed meanwhile, either the old bytes are there or the new ones, never a mixture.
    func write(_ name: String, _ bytes: [UInt8]) throws

    /// The bytes last written under `name`, without what was appended since; `nil` if there are none, or none that are whole.
    func read(_ name: String) throws -> [UInt8]?

    /// Forgets what is kept under `name`. Nothing kept is no error.
    func remove(_ name: String) throws

    /// Adds a change to what was last written under `name`, with the same promise as `write`.
    ///
    /// - Returns: false if nothing was added since the whole should be written instead: there is none yet, the changes have outgrown it, or the store
    ///   takes no changes (the default).
    func append(_ delta: [UInt8], to name: String) throws -> Bool

    /// What is kept under `name`, with the changes added to it, or why it cannot be used.
    func load(_ name: String) throws -> StoredState

    /// Moves what is kept under `name` out of the way, so that somebody can look at it and `load` finds nothing.
    func setAside(_ name: String, reason: String) throws

    /// Leaves a mark that whoever runs the service ends it by hand, and wants the next run to start clean.
    func markKilledByOperator() throws

    /// Whether that mark is there.
    func isMarkedKilledByOperator() throws -> Bool

    /// Takes that mark away.
    func clearKilledByOperatorMark() throws

    /// Lets go of locks and whatever else must not be held by a process that is frozen (C48). The next call takes them again.
    func relinquish()
}

/// What a store keeps under a name.
public enum StoredState: Sendable, Hashable {
    /// Nothing.
    case absent
    /// Something that cannot be used and was moved out of the way for this reason: cut short, damaged, written by a newer version.
    case setAside(reason: String)
    /// The bytes last written, and the changes appended since, oldest first.
    case state(base: [UInt8], deltas: [[UInt8]])
}

extension StateStore {
    /// Takes no changes: the whole is written each time.
    public func append(_ delta: [UInt8], to name: String) throws -> Bool { false }

    /// What `read` reads.
    public func load(_ name: String) throws -> StoredState { try read(name).map { .state(base: $0, deltas: []) } ?? .absent }

    /// Keeps a copy under `name` followed by `.aside`, in the place of an earlier one.
    public func setAside(_ name: String, reason: String) throws {
        guard let bytes = try read(name) else { return }
        try write(name + ".aside", bytes)
        try remove(name)
    }

    /// Kept like any state.
    public func markKilledByOperator() throws { try write(StateName.killedByOperator, []) }

    /// Read like any state.
    public func isMarkedKilledByOperator() throws -> Bool { try read(StateName.killedByOperator) != nil }

    /// Removed like any state.
    public func clearKilledByOperatorMark() throws { try remove(StateName.killedByOperator) }

    /// Holds nothing.
    public func relinquish() {}
}

/// The names that this package keeps its own state under.
enum StateName {
    static let killedByOperator = "plimsoll.killed-by-operator"
    static let launches = "plimsoll.launches"
    static let deferred = "plimsoll.deferred"
    static let handovers = "plimsoll.handovers"
}

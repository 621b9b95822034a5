/// A store that keeps state from one run of a process to the next: bytes by name.
///
/// Three requirements make a store; the others have default implementations built on these. All methods may be called
/// from any thread, and may block for as long as the medium takes.
public protocol StateStore: Sendable {
    /// Replaces the bytes under `name` with `bytes`, which survive the end of the process.
    ///
    /// The write is atomic: after an error or a kill, the store holds either the old bytes or the new ones, never a
    /// mixture.
    func write(_ name: String, _ bytes: [UInt8]) throws

    /// Returns the bytes last written under `name`, without appended changes; `nil` if there are none, or none
    /// intact.
    func read(_ name: String) throws -> [UInt8]?

    /// Removes the state under `name`. Not an error if there is none.
    func remove(_ name: String) throws

    /// Appends a change to the bytes last written under `name`, with the same promise as `write`.
    ///
    /// - Returns: False if the change was not appended and the whole should be written instead. Either there is no
    ///   whole yet, the changes have outgrown it, or the store takes no changes (the default).
    func append(_ delta: [UInt8], to name: String) throws -> Bool

    /// Returns the state under `name` with the changes appended, or the reason why the state cannot be used.
    func load(_ name: String) throws -> StoredState

    /// Moves the state under `name` out of the way for later inspection. Afterwards `load` finds no state.
    func setAside(_ name: String, reason: String) throws

    /// Leaves a mark that the operator ends this run by hand, so that the next run starts clean.
    func markKilledByOperator() throws

    /// Returns true if that mark is present.
    func isMarkedKilledByOperator() throws -> Bool

    /// Removes that mark.
    func clearKilledByOperatorMark() throws

    /// Releases locks and other resources that a frozen process must not hold (C48). The next call reacquires them.
    func relinquish()
}

/// The state that a store holds under a name.
public enum StoredState: Sendable, Hashable {
    /// No state.
    case absent
    /// The state could not be used and was set aside for this reason: cut short, damaged, written by a newer version.
    case setAside(reason: String)
    /// The bytes last written, and the changes appended since, oldest first.
    case state(base: [UInt8], deltas: [[UInt8]])
}

extension StateStore {
    /// Takes no changes: the whole state is written each time.
    public func append(_ delta: [UInt8], to name: String) throws -> Bool { false }

    /// Returns the bytes of `read`, without changes.
    public func load(_ name: String) throws -> StoredState {
        try read(name).map { .state(base: $0, deltas: []) } ?? .absent
    }

    /// Keeps a copy under `name` followed by `.aside`, and replaces an earlier copy.
    public func setAside(_ name: String, reason: String) throws {
        guard let bytes = try read(name) else { return }
        try write(name + ".aside", bytes)
        try remove(name)
    }

    /// Stores the mark like any state.
    public func markKilledByOperator() throws { try write(StateName.killedByOperator, []) }

    /// Reads the mark like any state.
    public func isMarkedKilledByOperator() throws -> Bool { try read(StateName.killedByOperator) != nil }

    /// Removes the mark like any state.
    public func clearKilledByOperatorMark() throws { try remove(StateName.killedByOperator) }

    /// Does nothing: the default store holds no resources.
    public func relinquish() {}
}

/// The names of this package's own state.
package enum StateName {
    static let killedByOperator = "plimsoll.killed-by-operator"
    package static let launches = "plimsoll.launches"
    static let deferred = "plimsoll.deferred"
    static let handovers = "plimsoll.handovers"
}

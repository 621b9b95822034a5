public import Plimsoll

extension Lifecycle {
    /// Preserves a piece of state between runs: restored at launch, saved on the way to the background and at
    /// termination.
    ///
    /// - Parameters:
    ///   - name: name of the state. A second state with the same name replaces the first.
    ///   - store: store for the state. The store of the first state also counts launches (`countLaunches`).
    ///   - snapshot: returns the current state as bytes; called on a manager's thread, beside other snapshots.
    ///   - restore: applies the bytes of a snapshot. The closure should check all bytes before it changes any state.
    ///     If it throws, the bytes are set aside and the process starts clean.
    ///   - apply: applies a change given to `Preserved.record`. With this closure, checkpoints append the recorded
    ///     changes, so the program must record every change. The whole state is written only when the changes have
    ///     outgrown the snapshot.
    ///   - reset: called if `restore` or `apply` throws, to undo what was applied so far. State is restored wholly or
    ///     not at all (C42).
    /// - Returns: A handle to record changes and to save in between. After launch, the state is restored before this
    ///   method returns.
    @discardableResult
    public func preserve(
        _ name: String, in store: any StateStore, snapshot: @escaping @Sendable () throws -> [UInt8],
        restore: @escaping @Sendable ([UInt8]) throws -> Void, apply: (@Sendable ([UInt8]) throws -> Void)? = nil,
        reset: (@Sendable () -> Void)? = nil
    ) -> Preserved {
        let change = apply.map { apply in { @Sendable (bytes: [UInt8], _: Int) in try apply(bytes) } }
        let closures = PreservedItem.Closures(
            snapshot: snapshot, restore: { bytes, _ in try restore(bytes) }, apply: change, reset: reset)
        return preservation.add(name, in: store, version: 1, closures)
    }

    /// Preserves state whose format has changed over time. `restore` and `apply` get the version that wrote the
    /// bytes, and migrate them.
    ///
    /// - Parameters:
    ///   - name: name of the state.
    ///   - store: store for the state.
    ///   - version: version of the bytes that `snapshot` returns now, `0...UInt32.max`. Bytes of a newer version are
    ///     set aside, and the process starts clean.
    ///   - snapshot: returns the state as bytes of that version.
    ///   - restore: applies the bytes of a snapshot of the given version.
    ///   - apply: applies a change recorded by the given version.
    ///   - reset: undoes what was applied so far, if `restore` or `apply` throws.
    @discardableResult
    public func preserve(
        _ name: String, in store: any StateStore, version: Int, snapshot: @escaping @Sendable () throws -> [UInt8],
        restore: @escaping @Sendable (_ bytes: [UInt8], _ version: Int) throws -> Void,
        apply: (@Sendable (_ delta: [UInt8], _ version: Int) throws -> Void)? = nil,
        reset: (@Sendable () -> Void)? = nil
    ) -> Preserved {
        precondition(
            version >= 0 && version <= Int(UInt32.max),
            "the version of a preserved state is \(version), which does not fit 32 bits")
        let closures = PreservedItem.Closures(snapshot: snapshot, restore: restore, apply: apply, reset: reset)
        return preservation.add(name, in: store, version: version, closures)
    }

    /// Counts launches in `store`. After `failures` consecutive failed launches, the next one starts clean: the state
    /// is set aside, not restored (T36).
    ///
    /// Without this call, launches are counted in the store of the first preserved state, and two may fail. Call this
    /// method before launch.
    ///
    /// - Parameters:
    ///   - store: store for the count.
    ///   - failures: number of failed launches, at least 1.
    public func countLaunches(in store: any StateStore, cleanStartAfter failures: Int = 2) {
        precondition(failures >= 1, "a launch cannot start clean after \(failures) failed ones; after 1 at the least")
        preservation.countLaunches(in: store, limit: failures)
    }

    /// The end of the previous run; `nil` before this run has launched.
    public var previousRun: PreviousRun? { preservation.previousRun.map { $0.refined(by: previousEnd()) } }

    /// Marks this process as about to be ended by hand, so that the next run starts clean (C24). Blocks for a write.
    ///
    /// From outside, while the process runs, `FileStateStore.markKilledByOperator(directory:)` or a file of that name
    /// has the same effect.
    public func markKilledByOperator() throws { try preservation.markKilledByOperator() }
}

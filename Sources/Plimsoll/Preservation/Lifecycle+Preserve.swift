extension Lifecycle {
    /// Keeps a piece of state from one run to the next: restored at launch, saved on the way to the background and at termination.
    ///
    /// - Parameters:
    ///   - name: what it is kept under. A second piece of the same name takes the place of the first.
    ///   - store: where it is kept. Launches are counted there, too, if it is the first (`countLaunches`).
    ///   - snapshot: the state as bytes, as it is now; called on a thread of the manager's, beside other snapshots.
    ///   - restore: takes over what a snapshot returned. It should look at all of it before it changes anything; if it throws, the bytes are set aside
    ///     and the process starts clean.
    ///   - apply: takes over a change given to `Preserved.record`. With it, checkpoints append the changes recorded, so all must be, and the whole is
    ///     written only when they have outgrown it.
    ///   - reset: called if `restore` or `apply` throws, to undo what was taken over so far: state is restored wholly or not at all (C42).
    /// - Returns: a handle to record changes and to save in between. After launch, the state is restored before this returns.
    @discardableResult
    public func preserve(
        _ name: String, in store: any StateStore, snapshot: @escaping @Sendable () throws -> [UInt8],
        restore: @escaping @Sendable ([UInt8]) throws -> Void, apply: (@Sendable ([UInt8]) throws -> Void)? = nil,
        reset: (@Sendable () -> Void)? = nil
    ) -> Preserved {
        let change = apply.map { apply in { @Sendable (bytes: [UInt8], _: Int) in try apply(bytes) } }
        let closures = PreservedItem.Closures(snapshot: snapshot, restore: { bytes, _ in try restore(bytes) }, apply: change, reset: reset)
        return preservation.add(name, in: store, version: 1, closures)
    }

    /// The same for state whose form has changed over time: `restore` and `apply` get the version that wrote the bytes, and migrate them.
    ///
    /// - Parameters:
    ///   - name: what it is kept under.
    ///   - store: where it is kept.
    ///   - version: of the bytes that `snapshot` returns now, `0...UInt32.max`. Bytes of a newer one are set aside, and the process starts clean.
    ///   - snapshot: the state as bytes of that version.
    ///   - restore: takes over what a snapshot of a version returned.
    ///   - apply: takes over a change recorded by a version.
    ///   - reset: undoes what was taken over so far, if one of them throws.
    @discardableResult
    public func preserve(
        _ name: String, in store: any StateStore, version: Int, snapshot: @escaping @Sendable () throws -> [UInt8],
        restore: @escaping @Sendable (_ bytes: [UInt8], _ version: Int) throws -> Void,
        apply: (@Sendable (_ delta: [UInt8], _ version: Int) throws -> Void)? = nil, reset: (@Sendable () -> Void)? = nil
    ) -> Preserved {
        precondition(version >= 0 && version <= Int(UInt32.max), "the version of a preserved state is \(version), which does not fit 32 bits")
        let closures = PreservedItem.Closures(snapshot: snapshot, restore: restore, apply: apply, reset: reset)
        return preservation.add(name, in: store, version: version, closures)
    }

    /// Has launches counted in `store`, and one start clean after so many in a row that did not come up: the state is set aside, not restored (T36).
    ///
    /// Without this call they are counted in the store of the first state preserved, and two may fail. Call it before launch.
    ///
    /// - Parameters:
    ///   - store: where the count is kept.
    ///   - failures: at least 1.
    public func countLaunches(in store: any StateStore, cleanStartAfter failures: Int = 2) {
        precondition(failures >= 1, "a launch cannot start clean after \(failures) failed ones; after 1 at the least")
        preservation.countLaunches(in: store, limit: failures)
    }

    /// How the run before this one ended; `nil` before this one has launched.
    public var previousRun: PreviousRun? { preservation.previousRun }

    /// Leaves a mark that this process is about to be ended by hand, so that the next run starts clean (C24). Blocks for a write.
    ///
    /// From outside, and while the process runs, `FileStateStore.markKilledByOperator(directory:)` or a file of that name does the same.
    public func markKilledByOperator() throws { try preservation.markKilledByOperator() }
}

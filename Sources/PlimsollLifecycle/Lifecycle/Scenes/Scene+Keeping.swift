public import Plimsoll
import Synchronization

/// The state that a scene preserves, and the memory and data that a scene releases and erases on the way to the
/// background.
extension Scene {
    /// Preserves the state of this scene. `restore` receives the state when a scene of this id is connected again.
    ///
    /// `snapshot` is saved on leaving the front, on the way to the background, on suspension, and before
    /// disconnection. Every checkpoint of the process saves the snapshot too (C41, C97). From the edge into the
    /// background on, a kill at any instant loses nothing (C43). Bytes identical to the last saved ones are not
    /// written again. A scene whose snapshot cannot be written is not evicted, and the process does not count as
    /// saved.
    ///
    /// Call this method in `connectScene`'s `configure`. A later call restores the state before returning.
    public func preserve(
        in store: any StateStore, snapshot: @escaping @Sendable () throws -> [UInt8],
        restore: @escaping @Sendable ([UInt8]) throws -> Void
    ) {
        let closures = PreservedItem.Closures(
            snapshot: snapshot, restore: { bytes, _ in try restore(bytes) }, apply: nil, reset: nil)
        let item = PreservedItem(
            name: "scene-\(id)", store: store, version: 1, form: .plain, closures: closures, threads: lifecycle.threads)
        let (former, isLate) = contents.withLock { contents in
            defer { contents.preserved = item }
            return (contents.preserved, contents.hasRestored)
        }
        if let former { lifecycle.preservation.remove(scene: former) }
        lifecycle.preservation.add(scene: item)
        if isLate { giveBack(item) }
    }

    /// Runs `scrub` before each snapshot that is taken of this scene behind the front.
    ///
    /// These are the snapshots on the way to the background, on suspension and on disconnection. Each scene is
    /// scrubbed separately.
    ///
    /// `scrub` is synchronous on purpose, as in `Lifecycle.onScrub`: when `scrub` returns, the data is erased (C45).
    /// The snapshot on leaving the front is taken before scrubbing, as the scene may return to the front at once.
    /// Data that must never be written does not belong in any snapshot.
    @discardableResult
    public func onScrub(_ name: String, _ scrub: @escaping @Sendable () -> Void) -> Registration {
        self.scrub.add(name, scrub)
    }

    /// Restores the preserved state. The scene may take steps from then on. Blocks while reading.
    func restore() {
        let item = contents.withLock { contents in
            contents.hasRestored = true
            return contents.preserved
        }
        if let item { giveBack(item) }
        contents.withLock { $0.isReady = true }
    }

    private func giveBack(_ item: PreservedItem) {
        guard case .cleanStart(let reason) = item.restore(cleanStartReason: nil) else { return }
        lifecycle.recordReport(
            LifecycleReport(target: aim, failures: ["state of scene \(id) was not restored: \(reason)"]))
    }

    /// Saves the scene's state if changed. Returns the failures, also for state not saved within `budget`. Blocks.
    func save(within budget: Duration) -> [PreservationFailure] {
        guard let item = contents.withLock({ $0.preserved }), item.isRestored else { return [] }
        return lifecycle.preservation.save([item], within: budget)
    }

    /// Stops preserving the scene's state: the scene has ended.
    func forgetState() {
        let item = contents.withLock { exchange(&$0.preserved, nil) }
        if let item { lifecycle.preservation.remove(scene: item) }
    }

    /// The purge handlers of each cache for the way to the background.
    var purges: [FanOut.Handler] {
        contents.withLock { $0.holders }.map { holder in
            FanOut.Handler(name: holder.purgeable.name, origin: "purgeable of scene \(id)") {
                if holder.purgesOnBackground { _ = holder.purgeable.release(max(0, holder.purgeable.heldBytes)) }
                _ = holder.purgeable.dropSpares()
            }
        }
    }

    /// Releases all caches. Returns the bytes that the caches report as released.
    @discardableResult
    func letGoOfAll() -> Int {
        let holders = contents.withLock { exchange(&$0.holders, []) }
        return holders.reduce(ByteCount.zero) { sum, holder in
            let released = holder.purgeable.release(max(0, holder.purgeable.heldBytes))
            holder.registration.cancel()
            return sum + ByteCount(max(0, released))
        }.bytes
    }
}

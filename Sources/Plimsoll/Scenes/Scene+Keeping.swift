import Synchronization

/// What a scene keeps over its end, and what it gives back and erases on its way to the background.
extension Scene {
    /// Keeps the state of this scene: `restore` is given it when a scene of this id is connected again.
    ///
    /// `snapshot` is saved when the scene leaves the front, on its way to the background, when it is suspended, before it is disconnected, and by every
    /// checkpoint of the process (C41, C97): from the edge into the background on, a kill at any instant loses nothing (C43). Bytes that are the same as those
    /// saved last are not written again. A scene whose snapshot cannot be written is not evicted, and its process does not count as saved.
    ///
    /// Call it in `connectScene`'s `configure`. After that the state is restored before this returns.
    public func preserve(
        in store: any StateStore, snapshot: @escaping @Sendable () throws -> [UInt8], restore: @escaping @Sendable ([UInt8]) throws -> Void
    ) {
        let closures = PreservedItem.Closures(snapshot: snapshot, restore: { bytes, _ in try restore(bytes) }, apply: nil, reset: nil)
        let item = PreservedItem(name: "scene-\(id)", store: store, version: 1, form: .plain, closures: closures, threads: lifecycle.threads)
        let (former, isLate) = contents.withLock { contents in
            defer { contents.preserved = item }
            return (contents.preserved, contents.hasRestored)
        }
        if let former { lifecycle.preservation.remove(scene: former) }
        lifecycle.preservation.add(scene: item)
        if isLate { giveBack(item) }
    }

    /// Runs `scrub` before each snapshot that is taken of this scene behind the front: on its way to the background, when it is suspended and when it is
    /// disconnected. Each scene is scrubbed by itself.
    ///
    /// It is synchronous on purpose, as `Lifecycle.onScrub` is: when it returns, what it had to erase is gone (C45). The snapshot taken on leaving the front
    /// comes before it, as the scene may be back in front at once: what must never be written belongs into no snapshot.
    @discardableResult
    public func onScrub(_ name: String, _ scrub: @escaping @Sendable () -> Void) -> Registration { self.scrub.add(name, scrub) }

    /// Gives back what was kept. Blocks for as long as reading takes.
    func restore() {
        let item = contents.withLock { contents in
            contents.hasRestored = true
            return contents.preserved
        }
        if let item { giveBack(item) }
    }

    private func giveBack(_ item: PreservedItem) {
        guard case .cleanStart(let reason) = item.restore(cleanStartReason: nil) else { return }
        lifecycle.book(LifecycleReport(target: aim, failures: ["state of scene \(id) was not restored: \(reason)"]))
    }

    /// Saves its state if that has changed; why that was not done within `budget`. Blocks.
    func save(within budget: Duration) -> [PreservationFailure] {
        guard let item = contents.withLock({ $0.preserved }), item.isRestored else { return [] }
        return lifecycle.preservation.save([item], within: budget)
    }

    /// Nothing of it is saved any more: it has ended.
    func forgetState() {
        let item = contents.withLock { contents in
            defer { contents.preserved = nil }
            return contents.preserved
        }
        if let item { lifecycle.preservation.remove(scene: item) }
    }

    /// What each holder does on the way to the background.
    var purges: [FanOut.Handler] {
        contents.withLock { $0.holders }.map { holder in
            FanOut.Handler(name: holder.purgeable.name, origin: "holder of scene \(id)") {
                if holder.purgesOnBackground { _ = holder.purgeable.release(max(0, holder.purgeable.heldBytes)) }
                _ = holder.purgeable.dropSpares()
            }
        }
    }

    /// Lets go of all its caches; the bytes they said they let go of.
    @discardableResult
    func letGoOfAll() -> Int {
        let holders = contents.withLock { contents in
            defer { contents.holders = [] }
            return contents.holders
        }
        return holders.reduce(ByteCount.zero) { sum, holder in
            let released = holder.purgeable.release(max(0, holder.purgeable.heldBytes))
            holder.registration.cancel()
            return sum + ByteCount(max(0, released))
        }.bytes
    }
}

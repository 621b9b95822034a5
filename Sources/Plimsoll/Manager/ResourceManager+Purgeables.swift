import Synchronization

extension ResourceManager {
    /// Returns a named group of registered purgeables. Groups of the same name are the same group. Slashes separate
    /// the names of nested groups.
    ///
    /// - Precondition: `name` has a character other than a slash.
    public func registerGroup(_ name: String) -> PurgeableGroup { PurgeableGroup(within: [], name, self) }

    /// Releases `target` bytes from the selection at once, independent of the level: volatile memory first, then
    /// the memory that is cheapest to rebuild. For an operator, and for code that is about to need much memory. A
    /// purgeable that is not released under pressure is asked only if selected by name.
    ///
    /// Blocks the calling thread until the release is done. Works even if the manager does not run. The report is
    /// also among `reports`. A purgeable inside a call from another thread is skipped, and named as overrun.
    @discardableResult
    public func release(_ target: Int = .max, from selection: PurgeableSelection = .all) -> ActionReport {
        let report = parts.selectedRelease(.operator).run(
            parts.purgeables.snapshot.filter(selection.mayAsk), ByteCount(target))
        parts.report(report)
        return report
    }

    /// Releases like the synchronous method, on a thread of the library.
    @discardableResult
    public func release(_ target: Int = .max, from selection: PurgeableSelection = .all) async -> ActionReport {
        await withCheckedContinuation { done in
            parts.threads.run { () -> Void in
                let report: ActionReport = self.release(target, from: selection)
                done.resume(returning: report)
            }
        }
    }

    /// Returns the bytes held by the selection. Asks each purgeable. If another thread is inside such a call into
    /// application code, the last answer counts.
    public func heldBytes(in selection: PurgeableSelection = .all) -> Int {
        // Saturating: a purgeable may return any number.
        parts.purgeables.snapshot.filter(selection.includes).reduce(ByteCount.zero) {
            $0 + $1.askHeld(at: parts.time.elapsed())
        }.bytes
    }
}

extension PurgeableRegistry.Entry {
    /// Asks for the held bytes; zero once the registration has ended.
    fileprivate func askHeld(at now: Duration) -> ByteCount {
        // The caches of this library answer any number of threads at once.
        if isPrompt { return statusGate.isClosed ? .zero : ByteCount(purgeable.heldBytes) }
        var bytes = held.load(ordering: .relaxed)
        let isAsked = statusGate.call(at: now) {
            bytes = purgeable.heldBytes
            held.store(min(max(0, bytes), ReleasePass.mostHeld), ordering: .relaxed)
        }
        return isAsked || !statusGate.isClosed ? ByteCount(bytes) : .zero
    }
}

extension ResourceManager {
    /// The worth of memory to the caches in sum; `nil` unless a supervisor has set a share, and before the first round
    /// after that. The curve is unreliable until the caches have learnt.
    package var worthOffer: WorthOffer? { parts.divider.offer }

    /// Sets the share of this process among the processes of a supervisor; `nil` if the supervisor is gone. Changes
    /// nothing where memory is divided in proportion.
    package func setProcessShare(_ share: ProcessShare?) {
        guard policy.division == .byWorth else { return }
        parts.divider.share(share)
    }
}

extension ResourceManager {
    /// Sets the limit of the registered cache named `name`. Evicts the excess on the calling thread.
    ///
    /// - Throws: `ResourceManagerError` if no cache or more than one has that name, or if the limit cannot be set.
    public func setLimit(_ limit: ByteCount, ofCacheNamed name: String) throws(ResourceManagerError) {
        let entries = parts.purgeables.snapshot
        let named = entries.filter { $0.name == name }
        guard let entry = named.first else {
            let names = entries.filter { $0.purgeable is any ResizablePurgeable }.prefix(20).map(\.name).joined(
                separator: ", ")
            throw ResourceManagerError(
                description:
                    "cannot set the limit of \"\(name)\" because no cache has that name; caches with a limit: \(names.isEmpty ? "none" : names)"
            )
        }
        guard named.count == 1 else {
            throw ResourceManagerError(
                description:
                    "cannot set the limit of \"\(name)\" because \(named.count) purgeables have that name; give each a name of its own"
            )
        }
        guard let cache = entry.purgeable as? any ResizablePurgeable else {
            throw ResourceManagerError(
                description: "cannot set the limit of \"\(name)\" because the purgeable is not a ResizablePurgeable")
        }
        cache.resize(to: limit)
    }

    /// Sets the limits of the caches with these names, registered now or later, if their limits can be set. Other
    /// caches stay unchanged. Runs on the calling thread.
    package func setLimits(_ limits: [String: ByteCount]) { parts.purgeables.setLimits(limits) }
}

/// A named group of registered purgeables, which may contain further groups: images, and among them thumbnails
/// (C81).
///
/// Register objects that manage much memory, such as a cache, a pool or a store, not each object inside. A group
/// does not change when and in which order its members are asked under pressure. An operator can name a group, and
/// the group's memory is reported as a whole.
///
///     let images = manager.registerGroup("images")
///     let thumbnails = images.registerGroup("thumbnails")
///     thumbnails.register(cache)
///     manager.release(.mebibytes(64), from: .group("images"))
public final class PurgeableGroup: Sendable {
    /// Names of the enclosing groups, then the name of this group.
    public let path: [String]
    private let manager: ResourceManager

    fileprivate init(within group: [String], _ name: String, _ manager: ResourceManager) {
        let names = PurgeablePlace.path(name)
        precondition(!names.isEmpty, "a group of purgeables with the name \"\(name)\": a group needs a name")
        path = group + names
        self.manager = manager
    }

    /// The path joined by slashes, as `PurgeableSelection.group` takes.
    public var name: String { path.joined(separator: "/") }

    /// Returns a group within this one, as `ResourceManager.registerGroup(_:)` does.
    public func registerGroup(_ name: String) -> PurgeableGroup { PurgeableGroup(within: path, name, manager) }

    /// Registers `purgeable` in this group, like `ResourceManager.register(_:purgesOnBackground:tags:)`.
    @discardableResult
    public func register(_ purgeable: any Purgeable, purgesOnBackground: Bool = false, tags: [String] = [])
        -> Registration
    {
        manager.register(purgeable, PurgeablePlace(group: path, tags: tags, purgesOnBackground: purgesOnBackground))
    }

    /// Bytes held by all members, nested groups included. Asks each member.
    public var heldBytes: Int { manager.heldBytes(in: .group(name)) }

    /// Releases `target` bytes from the members, like `ResourceManager.release(_:from:)`.
    @discardableResult
    public func release(_ target: Int = .max) -> ActionReport { manager.release(target, from: .group(name)) }
}

extension ResourceManager {
    /// Releases the heap's free pages to the kernel. A manager does this after a purge; call this method after freeing
    /// much memory on your own. Allocates nothing.
    ///
    /// With glibc, this may block other threads' allocations: for 0.9 s with 2 GiB of heap (measured on two cores).
    /// jemalloc blocks for some 10 ms. Does nothing with other allocators.
    ///
    /// - Returns: true if the allocator can give pages back on request.
    @discardableResult
    public static func giveBackHeap() -> Bool {
        HeapAllocator.current.giveBack(.full)
        return HeapAllocator.current.canGiveBack
    }

    /// The allocator's own figures of its memory; jemalloc only, `nil` elsewhere.
    // A type with a name. The runtime would look up a tuple's by text, in strings of C++, and where a sanitizer owns
    // malloc beside jemalloc the process ends there.
    public static var heap: HeapSample? { HeapAllocator.current.sample() }
}

import Synchronization

/// A load in progress for a value that will have tags or replace an existing entry.
@usableFromInline
final class TaggedLoad: Sendable {
    let tags: [String]
    /// Mark of the entry that this load is to replace; `nil` for a load without an entry.
    @usableFromInline let claim: Int64?
    // Relaxed: the revoking thread sets the flag and then takes the lock of the shard that would keep the value.
    // The inserting thread reads the flag under that lock.
    private let revoked = Atomic<Bool>(false)

    init(_ tags: [String], claim: Int64? = nil) {
        self.tags = tags
        self.claim = claim
    }

    /// True if the loaded value must not be kept.
    @usableFromInline
    var isRevoked: Bool { revoked.load(ordering: .relaxed) }
    fileprivate func revoke() { revoked.store(true, ordering: .relaxed) }
}

/// Loads in progress for values with tags. A load that began before a purge of a tag must not leave a value behind
/// afterwards.
final class TaggedLoads<Key: Hashable & Sendable>: Sendable {
    private let loads = Mutex<[String: [ObjectIdentifier: (load: TaggedLoad, keys: [Key])]]>([:])

    /// Runs `body` with the load under which to keep values. The load is `nil` without tags and claim, which costs
    /// nothing.
    func during<Result>(
        _ keys: [Key], _ tags: [String], claim: Int64? = nil, _ body: (TaggedLoad?) async throws -> Result
    ) async throws -> Result {
        let load = begin(keys, tags, claim)
        defer { end(load) }
        return try await body(load)
    }

    /// Runs `body` as above, without a task.
    func during<Result>(_ keys: [Key], _ tags: [String], now body: (TaggedLoad?) throws -> Result) throws -> Result {
        let load = begin(keys, tags, nil)
        defer { end(load) }
        return try body(load)
    }

    private func begin(_ keys: [Key], _ tags: [String], _ claim: Int64?) -> TaggedLoad? {
        guard !tags.isEmpty else { return claim.map { TaggedLoad([], claim: $0) } }
        let load = TaggedLoad(tags, claim: claim)
        loads.withLock { loads in for tag in tags { loads[tag, default: [:]][ObjectIdentifier(load)] = (load, keys) } }
        return load
    }

    private func end(_ load: TaggedLoad?) {
        guard let load, !load.tags.isEmpty else { return }
        // Move the keys out of the lock before they may be destroyed.
        let removed = loads.withLock { loads in
            load.tags.map { tag in
                let removed = loads[tag]?.removeValue(forKey: ObjectIdentifier(load))
                if loads[tag]?.isEmpty ?? false { loads[tag] = nil }
                return removed
            }
        }
        withExtendedLifetime(removed) {}
    }

    /// Revokes all loads in progress under `tag`: their values are not kept.
    ///
    /// - Returns: the keys of these loads.
    func revoke(_ tag: String) -> [Key] {
        let under = loads.withLock { loads in (loads[tag] ?? [:]).values.map { $0 } }
        for (load, _) in under { load.revoke() }
        return under.flatMap(\.keys)
    }
}

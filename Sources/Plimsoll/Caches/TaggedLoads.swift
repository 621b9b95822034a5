import Synchronization

/// A load under way of a value that will bear tags, or is to take the place of one that is there.
@usableFromInline
final class TaggedLoad: Sendable {
    let tags: [String]
    /// What its entry is marked with as long as it is the one that this is loaded for; `nil` for a load that finds no entry.
    @usableFromInline let claim: Int64?
    // Relaxed: whoever revokes takes the lock of the place where the value would be kept afterwards, whoever keeps it looks here under that lock.
    private let revoked = Atomic<Bool>(false)

    init(_ tags: [String], claim: Int64? = nil) {
        self.tags = tags
        self.claim = claim
    }

    /// Whether what it brings may not be kept.
    @usableFromInline
    var isRevoked: Bool { revoked.load(ordering: .relaxed) }
    fileprivate func revoke() { revoked.store(true, ordering: .relaxed) }
}

/// The loads under way of values that will bear tags, so that none that began before a tag was purged leaves a value behind afterwards.
final class TaggedLoads<Key: Hashable & Sendable>: Sendable {
    private let loads = Mutex<[String: [ObjectIdentifier: (load: TaggedLoad, keys: [Key])]]>([:])

    /// Runs `body` with the load to keep its values under; `nil` for values without tags or a claim, which costs nothing.
    func during<Result>(
        _ keys: [Key], _ tags: [String], claim: Int64? = nil, _ body: (TaggedLoad?) async throws -> Result
    ) async throws -> Result {
        let load = begin(keys, tags, claim)
        defer { end(load) }
        return try await body(load)
    }

    /// The same without a task.
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
        // Keys leave the lock before they may die.
        let removed = loads.withLock { loads in
            load.tags.map { tag in
                let removed = loads[tag]?.removeValue(forKey: ObjectIdentifier(load))
                if loads[tag]?.isEmpty ?? false { loads[tag] = nil }
                return removed
            }
        }
        withExtendedLifetime(removed) {}
    }

    /// What is being loaded under `tag` will not be kept.
    ///
    /// - Returns: the keys.
    func revoke(_ tag: String) -> [Key] {
        let under = loads.withLock { loads in (loads[tag] ?? [:]).values.map { $0 } }
        for (load, _) in under { load.revoke() }
        return under.flatMap(\.keys)
    }
}

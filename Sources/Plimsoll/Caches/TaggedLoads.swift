import Synchronization

/// A load under way of a value that will bear tags.
@usableFromInline
final class TaggedLoad: Sendable {
    let tags: [String]
    // Relaxed: whoever revokes takes the lock of the place where the value would be kept afterwards, whoever keeps it looks here under that lock.
    private let revoked = Atomic<Bool>(false)

    init(_ tags: [String]) { self.tags = tags }

    /// Whether what it brings may not be kept.
    @usableFromInline
    var isRevoked: Bool { revoked.load(ordering: .relaxed) }
    fileprivate func revoke() { revoked.store(true, ordering: .relaxed) }
}

/// The loads under way of values that will bear tags, so that none that began before a tag was purged leaves a value behind afterwards.
final class TaggedLoads<Key: Hashable & Sendable>: Sendable {
    private let loads = Mutex<[String: [ObjectIdentifier: (load: TaggedLoad, key: Key)]]>([:])

    /// Runs `body` with the load to keep its value under; `nil` for a value without tags, which costs nothing.
    func during<Value>(_ key: Key, _ tags: [String], _ body: (TaggedLoad?) async throws -> Value) async throws -> Value {
        guard !tags.isEmpty else { return try await body(nil) }
        let load = TaggedLoad(tags)
        loads.withLock { loads in for tag in tags { loads[tag, default: [:]][ObjectIdentifier(load)] = (load, key) } }
        defer { end(load) }
        return try await body(load)
    }

    private func end(_ load: TaggedLoad) {
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
        return under.map(\.key)
    }
}

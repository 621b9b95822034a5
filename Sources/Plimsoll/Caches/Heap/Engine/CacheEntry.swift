/// An entry on its way out of the lock, so that key and value are released after the lock (T2).
@usableFromInline
struct CacheEntry<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    @usableFromInline var key: Key
    @usableFromInline var value: Value
    @usableFromInline var cost: Int
    @usableFromInline var reason: RemovalReason

    @inlinable
    init(key: consuming Key, value: consuming Value, cost: Int, reason: RemovalReason) {
        (self.key, self.value, self.cost, self.reason) = (key, value, cost, reason)
    }
}

/// Entries taken out under a lock and released after the lock. Used by one thread at a time.
///
/// Plain memory instead of an array: unspecialized generic code allocates when it looks up an array's conformances.
// Unchecked: one thread at a time uses a batch, having created it or taken it out of the cache's mutex until the
// work is done.
final class CacheBatch<Entry: Sendable>: @unchecked Sendable {
    private let entries: UnsafeMutablePointer<Entry>
    private let capacity: Int
    private(set) var count = 0

    init(capacity: Int) {
        self.capacity = capacity
        entries = .allocate(capacity: capacity)
    }

    deinit {
        drain { _ in }
        entries.deallocate()
    }

    var isFull: Bool { count == capacity }

    func append(_ entry: consuming Entry) {
        (entries + count).initialize(to: entry)
        count += 1
    }

    /// Calls `body` with each entry.
    func forEach(_ body: (borrowing Entry) -> Void) {
        var position = 0
        while position < count {
            body(entries[position])
            position += 1
        }
    }

    /// Calls `body` with each entry, and removes the entry.
    func drain(_ body: (borrowing Entry) -> Void) {
        var position = 0
        while position < count {
            body((entries + position).move())
            position += 1
        }
        count = 0
    }
}

/// What is kept, on its way out of the lock, so that key and value are released outside it (T2).
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

/// Entries on their way out: taken under a lock, released after it. Used by one thread at a time.
///
/// Plain memory instead of an array, because unspecialized generic code allocates when it looks up an array's conformances.
// Unchecked: whoever uses it has taken it out of the cache's mutex or made it, and puts it back when done; one thread at a time.
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

    /// Shows each entry to `body`.
    func forEach(_ body: (borrowing Entry) -> Void) {
        var position = 0
        while position < count {
            body(entries[position])
            position += 1
        }
    }

    /// Hands each entry to `body` and forgets it.
    func drain(_ body: (borrowing Entry) -> Void) {
        var position = 0
        while position < count {
            body((entries + position).move())
            position += 1
        }
        count = 0
    }
}

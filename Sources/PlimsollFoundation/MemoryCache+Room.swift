import Plimsoll
import Synchronization

// Making room, and what becomes of those who make it.
extension MemoryCache {
    /// Enters a newcomer, evicting for it as many as there were at most: a delegate that puts back what is evicted would keep it going for ever.
    ///
    /// - Parameter cost: as it was stated; it is entered as `CacheBooks` counts it.
    @usableFromInline
    func makeRoom(for key: CacheKey<Key>, cost: Int) -> Bool {
        guard books.couldAdmit(cost) else { return false }
        if books.enter(cost) { return true }
        // Full: what is to be replaced goes first, or another one would go in its place.
        entries.removeValue(forKey: key)
        for _ in 0...books.count {
            if books.enter(cost) { return true }
            guard entries.evict(count: 1) == 1 else { return false }
        }
        return false
    }

    /// Evicts what is over the limits.
    @usableFromInline
    func trim() {
        guard books.isOver else { return }
        for _ in 0..<books.count { guard books.isOver, entries.evict(count: 1) == 1 else { return } }
    }

    /// The object, unless its content was discarded; then it leaves.
    @usableFromInline
    func look(at object: CachedObject<Value>, _ key: CacheKey<Key>) -> Value? {
        guard evictsObjectsWithDiscardedContent, object.discardable?.isContentDiscarded() == true else { return object.value }
        discoveries.wrappingAdd(1, ordering: .relaxed)
        // One set anew in between goes with it: a miss like any other.
        if let removed = entries.removeValue(forKey: key) { letGo(removed) }
        return nil
    }

    func letGo(_ object: CachedObject<Value>) {
        delegate?.cache(self, willEvictObject: object.value)
        // Whoever still holds the object holds its content no longer: dropping a reference alone would free nothing.
        if evictsObjectsWithDiscardedContent { object.discardable?.discardContentIfPossible() }
    }
}

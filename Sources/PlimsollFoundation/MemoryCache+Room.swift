import Plimsoll
import Synchronization

// Makes room for new objects, and handles evicted ones.
extension MemoryCache {
    /// Admits a new object, evicting at most as many objects as were present. Without that bound, a delegate that
    /// puts evicted objects back would prolong the loop for ever.
    ///
    /// - Parameter cost: the stated cost, counted as `CacheBooks` does.
    @usableFromInline
    func makeRoom(for key: CacheKey<Key>, cost: Int) -> Bool {
        guard books.couldAdmit(cost) else { return false }
        if books.enter(cost) { return true }
        // The cache is full. Remove the object to be replaced first; otherwise another object would be evicted
        // instead.
        entries.removeValue(forKey: key)
        for _ in 0...books.count {
            if books.enter(cost) { return true }
            guard entries.evict(count: 1) == 1 else { return false }
        }
        return false
    }

    /// Evicts until the limits hold.
    @usableFromInline
    func trim() {
        guard books.isOver else { return }
        for _ in 0..<books.count { guard books.isOver, entries.evict(count: 1) == 1 else { return } }
    }

    /// Returns the object. If the content was discarded, removes the object and returns `nil`.
    @usableFromInline
    func look(at object: CachedObject<Value>, _ key: CacheKey<Key>) -> Value? {
        guard evictsObjectsWithDiscardedContent, object.discardable?.isContentDiscarded() == true else {
            return object.value
        }
        discoveries.wrappingAdd(1, ordering: .relaxed)
        // An object set under the key in the meantime is removed too: a miss like any other.
        if let removed = entries.removeValue(forKey: key) { letGo(removed) }
        return nil
    }

    func letGo(_ object: CachedObject<Value>) {
        delegate?.cache(self, willEvictObject: object.value)
        // Other code may still hold the object, so dropping the reference alone would release nothing. Discard the
        // content too.
        if evictsObjectsWithDiscardedContent { object.discardable?.discardContentIfPossible() }
    }
}

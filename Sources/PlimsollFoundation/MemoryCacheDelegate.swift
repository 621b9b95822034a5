/// A delegate notified of objects that a `MemoryCache` itself removes: `NSCacheDelegate`.
public protocol MemoryCacheDelegate<Key, Value>: AnyObject, Sendable {
    associatedtype Key
    associatedtype Value

    /// Called with each object removed for a limit, under memory pressure, or because the content was discarded. Not
    /// called for objects that the program removes or replaces, nor when the cache is deallocated.
    ///
    /// Called outside every lock, on the thread that caused the removal, which may be the manager's. The delegate may
    /// use the cache in any way. The object is no longer in the cache.
    func cache(_ cache: MemoryCache<Key, Value>, willEvictObject object: Value)
}

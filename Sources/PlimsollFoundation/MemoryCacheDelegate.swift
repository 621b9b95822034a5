/// Hears of what a `MemoryCache` lets go of by itself: `NSCacheDelegate`.
public protocol MemoryCacheDelegate<Key, Value>: AnyObject, Sendable {
    associatedtype Key
    associatedtype Value

    /// Called with each object that leaves for a limit, under memory pressure or because its content was discarded; not with what the program
    /// removes or replaces, nor when the cache itself goes.
    ///
    /// It is called after every lock, on the thread that made the object leave, which may be the manager's: it may use the cache in any way.
    /// The object is no longer in the cache.
    func cache(_ cache: MemoryCache<Key, Value>, willEvictObject object: Value)
}

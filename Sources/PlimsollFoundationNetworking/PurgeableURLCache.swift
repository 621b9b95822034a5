public import FoundationNetworking
import Synchronization

/// A `URLCache` that can give back part of its memory, oldest first, and keeps what it has on disk.
///
/// ```swift
/// let cache = PurgeableURLCache(memoryCapacity: 64 << 20, diskCapacity: 512 << 20, diskPath: "/var/cache/shop")
/// configuration.urlCache = cache
/// manager.register(cache)
/// ```
///
/// It exists because a plain one crashes when it evicts after the same request has been stored twice (`evictFromMemoryCacheAssumingLockHeld` in swift-corelibs-foundation,
/// read and tried in Swift 6.3: the list of what is oldest has the request twice, the table once). Here what is replaced is removed first.
// Unchecked: URLCache is Sendable, and this adds a mutex.
public final class PurgeableURLCache: URLCache, @unchecked Sendable {
    /// Held from removing to storing, so that no request is ever listed twice, and while the capacity is not the one that was set. Nothing runs under it but
    /// URLCache.
    private let storing = Mutex(())

    /// Stores the response in place of one that was there, in memory and on disk as its policy says.
    public override func storeCachedResponse(_ cachedResponse: CachedURLResponse, for request: URLRequest) {
        guard cachedResponse.storagePolicy != .notAllowed else { return }
        storing.withLock { _ in
            super.removeCachedResponse(for: request)
            super.storeCachedResponse(cachedResponse, for: request)
        }
    }

    /// Evicts from memory, oldest first, until at most `size` bytes are left. What is on disk stays.
    ///
    /// - Complexity: O(responses in memory).
    public func trimMemory(to size: Int) {
        storing.withLock { _ in
            let capacity = memoryCapacity
            memoryCapacity = min(capacity, max(0, size))
            memoryCapacity = capacity
        }
    }
}

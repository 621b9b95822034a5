public import FoundationNetworking
import Synchronization

/// A `URLCache` that can release part of its memory, oldest responses first, while the disk cache stays.
///
/// ```swift
/// let cache = PurgeableURLCache(memoryCapacity: 64 << 20, diskCapacity: 512 << 20, diskPath: "/var/cache/shop")
/// configuration.urlCache = cache
/// manager.register(cache)
/// ```
///
/// A plain `URLCache` crashes on an eviction after the same request has been stored twice
/// (`evictFromMemoryCacheAssumingLockHeld` in swift-corelibs-foundation, read and tested in Swift 6.3). The list of
/// oldest entries then contains the request twice, the table once. This class removes a response before replacing it.
// Unchecked: URLCache is Sendable, and this class adds only a mutex.
public final class PurgeableURLCache: URLCache, @unchecked Sendable {
    /// Held from the removal to the storing, so that no request is ever listed twice, and while `memoryCapacity` is
    /// lowered temporarily. Only URLCache code runs under the lock.
    private let storing = Mutex(())

    /// Stores the response, replacing the present one, in memory and on disk as the storage policy says.
    public override func storeCachedResponse(_ cachedResponse: CachedURLResponse, for request: URLRequest) {
        guard cachedResponse.storagePolicy != .notAllowed else { return }
        storing.withLock { _ in
            super.removeCachedResponse(for: request)
            super.storeCachedResponse(cachedResponse, for: request)
        }
    }

    /// Evicts responses from memory, oldest first, until at most `size` bytes are left. The disk cache stays.
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

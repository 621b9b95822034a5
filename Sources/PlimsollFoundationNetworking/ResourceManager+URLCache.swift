public import FoundationNetworking
public import Plimsoll

extension ResourceManager {
    /// Registers a `URLCache` for release under pressure. The cache and the sessions that use the cache keep working.
    ///
    /// A `PurgeableURLCache` releases as much memory as requested, oldest responses first, and keeps its disk cache.
    /// Any other cache is emptied completely, on disk as well: a plain `URLCache` has no safe call that releases
    /// memory only (see `PurgeableURLCache`).
    ///
    /// - Parameters:
    ///   - name: name in reports.
    ///   - rebuildCost: cost of fetching a response again.
    ///   - purgesOnBackground: true to release everything on entry to the background.
    @discardableResult
    public func register(
        _ cache: URLCache, name: String = "URLCache", rebuildCost: RebuildCost = .expensive,
        purgesOnBackground: Bool = false
    ) -> Registration {
        register(URLCacheHolder(cache, name, rebuildCost), purgesOnBackground: purgesOnBackground)
    }
}

private final class URLCacheHolder: Purgeable {
    let name: String
    let rebuildCost: RebuildCost
    private let cache: URLCache

    init(_ cache: URLCache, _ name: String, _ rebuildCost: RebuildCost) {
        self.cache = cache
        self.name = name
        self.rebuildCost = rebuildCost
    }

    var heldBytes: Int { cache.currentMemoryUsage }

    func release(_ target: Int) -> Int {
        let before = heldBytes
        guard target > 0, before > 0 else { return 0 }
        if let cache = cache as? PurgeableURLCache {
            cache.trimMemory(to: max(0, before - target))
        } else {
            cache.removeAllCachedResponses()
        }
        // Responses stored in the meantime count against the result, which never exceeds the actual release.
        return max(0, before - heldBytes)
    }
}

public import FoundationNetworking
public import Plimsoll

extension ResourceManager {
    /// Makes a `URLCache` give way under pressure. It goes on serving, as do the sessions that have it.
    ///
    /// A `PurgeableURLCache` gives up as much of its memory as is asked for, oldest first, and keeps its disk. Any other is emptied whole, on disk as well: it has no
    /// call that lets go of memory only and is safe (see `PurgeableURLCache`).
    ///
    /// - Parameters:
    ///   - name: how reports name it.
    ///   - rebuildCost: what it costs to have a response again.
    ///   - purgesOnBackground: whether it lets go of everything on the way to the background.
    @discardableResult
    public func register(
        _ cache: URLCache, name: String = "URLCache", rebuildCost: RebuildCost = .expensive, purgesOnBackground: Bool = false
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
        // What is stored meanwhile counts against it: never more than has gone.
        return max(0, before - heldBytes)
    }
}

import Plimsoll
import PlimsollLifecycle

/// A stream of requests to a cache. Misses are inserted.
struct Replay {
    let trace: TraceFile

    /// The hits of each policy with the same capacity, in percent of the requests.
    struct Result: Codable {
        var ours: Double
        var optimal: Double
        var leastRecentlyUsed: Double
        var s3fifo: Double
    }

    func run(capacity: Int) -> Result {
        var lru = ExactLRU(budget: capacity, keyCount: trace.keyCount)
        var s3fifo = ReferenceS3FIFO(capacity: capacity, keyCount: trace.keyCount)
        return Result(
            ours: percent(ourHits(capacity: capacity)),
            optimal: percent(OptimalReplay.hits(trace.requests, keyCount: trace.keyCount, capacity: capacity)),
            leastRecentlyUsed: percent(trace.requests.count { lru.request($0) }),
            s3fifo: percent(trace.requests.count { s3fifo.request($0) }))
    }

    /// Returns the hits of the cache itself, called from another module as users do.
    private func ourHits(capacity: Int) -> Int {
        let cache = PurgeableCache<UInt64, UInt64>("trace", limit: ByteCount(capacity), cost: { _, _ in 1 })
        var hits = 0
        for request in trace.requests {
            if cache.value(forKey: UInt64(request)) != nil {
                hits += 1
            } else {
                cache.insert(UInt64(request), forKey: UInt64(request))
            }
        }
        return hits
    }

    /// Returns the hits with room for `budget` bytes, each key at the key's size, in percent of the requests and of
    /// their bytes.
    ///
    /// - Precondition: the trace has sizes.
    func run(budget: Int) -> (ours: Share, leastRecentlyUsed: Share) {
        let sizes = trace.sizes
        let cache = PurgeableCache<UInt64, UInt64>(
            "trace", limit: ByteCount(budget), cost: { key, _ in Int(sizes[Int(key)]) })
        var lru = ExactLRU(budget: budget, keyCount: trace.keyCount) { Int(sizes[Int($0)]) }
        let ours = share { request in
            if cache.value(forKey: UInt64(request)) != nil { return true }
            cache.insert(UInt64(request), forKey: UInt64(request))
            return false
        }
        return (ours, share { lru.request($0) })
    }

    /// In percent.
    struct Share {
        var requests: Double
        var bytes: Double
    }

    private func share(_ request: (UInt32) -> Bool) -> Share {
        var hits = 0, hitBytes = 0, bytes = 0
        for key in trace.requests {
            let size = Int(trace.sizes[Int(key)])
            bytes += size
            guard request(key) else { continue }
            hits += 1
            hitBytes += size
        }
        return Share(requests: percent(hits), bytes: 100 * Double(hitBytes) / Double(max(1, bytes)))
    }

    private func percent(_ hits: Int) -> Double { 100 * Double(hits) / Double(trace.requests.count) }
}

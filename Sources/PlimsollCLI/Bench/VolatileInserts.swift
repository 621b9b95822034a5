import Plimsoll

/// How fast one thread fills a cache. By processor time, the kernel's share (pages brought in, zeroed, sealed, given back) included.
struct VolatileInserts {
    let valueSize: Int
    /// Bytes of values inserted in each round.
    let payload: Int

    /// Gigabytes of values a second into a cache that is full: each round replaces everything, so that all is evicted, sealed and given back once.
    func refilling(rounds: Int) -> Double {
        let cache = VolatileCache<UInt64, [UInt8]>("inserts", limit: ByteCount(payload))
        var key: UInt64 = 0
        _ = fill(cache, &key)
        return median((0..<rounds).map { _ in fill(cache, &key) }) ?? .nan
    }

    /// The same into a new cache in each round, from which nothing is evicted.
    func fresh(rounds: Int) -> Double {
        var key: UInt64 = 0
        return median((0..<rounds).map { _ in fill(VolatileCache<UInt64, [UInt8]>("inserts"), &key) }) ?? .nan
    }

    private func fill(_ cache: VolatileCache<UInt64, [UInt8]>, _ key: inout UInt64) -> Double {
        let value = [UInt8](repeating: 1, count: valueSize)
        let before = SteadyClock.thread
        for _ in 0..<payload / valueSize {
            let isKept = cache.insert(value, forKey: key)
            precondition(isKept)
            key += 1
        }
        return Double(payload) / (SteadyClock.thread - before).inSeconds / 1e9
    }
}

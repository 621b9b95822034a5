import Plimsoll
import PlimsollDemos

/// Measures the rate at which one thread fills a cache. Uses processor time, with the kernel's share included: page
/// faults, zeroing, sealing and release of pages.
struct VolatileInserts {
    let valueSize: Int
    /// Bytes of values inserted in each round.
    let payload: Int

    /// Returns gigabytes of values a second into a full cache. Each round replaces everything, so that all is
    /// evicted, sealed and released once.
    func refilling(rounds: Int) -> Double {
        let cache = VolatileCache<UInt64, [UInt8]>("inserts", limit: ByteCount(payload))
        var key: UInt64 = 0
        _ = fill(cache, &key)
        return median((0..<rounds).map { _ in fill(cache, &key) }) ?? .nan
    }

    /// Returns gigabytes a second into a new cache in each round, without evictions.
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

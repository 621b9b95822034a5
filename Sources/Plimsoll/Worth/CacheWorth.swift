/// The worth of memory to a cache: its miss curve, the time of a load, and its share.
package struct CacheWorth: Sendable, Hashable {
    package var curve: MissCurve
    /// Bytes that the cache keeps when memory is at its limit.
    package var share: Int
    /// The share of least cost, towards which the share moves.
    package var target: Int
    package var requestsPerSecond: Double
    /// Time of a load in nanoseconds.
    package var loadTime: Double

    package init(curve: MissCurve, share: Int, target: Int, requestsPerSecond: Double, loadTime: Double) {
        (self.curve, self.share, self.target) = (curve, share, target)
        (self.requestsPerSecond, self.loadTime) = (requestsPerSecond, loadTime)
    }

    /// Returns the misses at a size as part of the requests; 1 without requests.
    package func missRatio(at bytes: Int) -> Double {
        curve.requests > 0 ? curve.misses(at: bytes) / curve.requests : 1
    }

    /// Returns the hits a second that a change of the share by `bytes` adds; negative if the share shrinks.
    package func hitsPerSecond(from bytes: Int) -> Double {
        let (sum, overflow) = share.addingReportingOverflow(bytes)
        return (missRatio(at: share) - missRatio(at: overflow ? .max : max(0, sum))) * requestsPerSecond
    }
}

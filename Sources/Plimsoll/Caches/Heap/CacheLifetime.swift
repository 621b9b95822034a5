/// Lifetimes of a cache's values, in nanoseconds.
@frozen @usableFromInline
struct CacheLifetime: Sendable {
    @usableFromInline let timeToLive: Int64?
    @usableFromInline let idleTime: Int64?
    @usableFromInline let refreshAfter: Int64?

    init(_ timeToLive: Duration?, _ timeToIdle: Duration?, _ refreshAfter: Duration?) {
        self.timeToLive = timeToLive?.inNanoseconds
        idleTime = timeToIdle?.inNanoseconds
        self.refreshAfter = refreshAfter?.inNanoseconds
    }

    var isLimited: Bool { timeToLive != nil || idleTime != nil || refreshAfter != nil }
}

/// Deadlines of an entry that is inserted now.
@usableFromInline
struct CacheTimes: Sendable {
    @usableFromInline var now: Int64
    @usableFromInline var times: SlotTimes
}

extension PurgeableCache {
    @usableFromInline
    var now: Int64 { time.elapsed().inNanoseconds }

    /// Returns the deadlines of an entry inserted now; `nil` if no entry of this cache expires.
    @inlinable @inline(__always)
    func times(_ timeToLive: Duration?) -> CacheTimes? {
        if timeToLive == nil, !counters.has(.expiry) { return nil }
        return timesFromNow(timeToLive)
    }

    @usableFromInline
    func timesFromNow(_ timeToLive: Duration?) -> CacheTimes {
        if timeToLive != nil { counters.use(.expiry) }
        let now = now
        func moment(_ wait: Int64?) -> Int64 {
            guard let wait else { return .max }
            let (sum, overflow) = now.addingReportingOverflow(max(0, wait))
            return overflow ? .max : sum
        }
        return CacheTimes(
            now: now,
            times: SlotTimes(
                expires: moment(timeToLive?.inNanoseconds ?? lifetime.timeToLive), idles: moment(lifetime.idleTime),
                refreshes: moment(lifetime.refreshAfter)))
    }
}

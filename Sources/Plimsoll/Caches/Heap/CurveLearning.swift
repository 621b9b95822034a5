import Synchronization

/// The miss curve that a cache learns, and the counts of the round.
final class CurveLearning: Sendable {
    private struct State: ~Copyable {
        var meter = CurveMeter()
        var onRound: (@Sendable () -> Void)?
        /// The cache's statistics at the end of the last round; `nil` before the first.
        var before: CacheStatistics?
        var endedAt = Duration.zero
        /// Length of the rounds so far in seconds; those of a round weigh less in the next, as its requests do.
        var seconds = 0.0
        /// Loads and their time in nanoseconds; those of a round weigh less in the next.
        var loads = 0.0
        var loadTime = 0.0
        /// Estimated look-ups in the round.
        var estimate = 0.0
    }

    private let state = Mutex(State())
    /// Hash of the last sampled look-up. Relaxed: a hash that another thread overwrites is noted once more.
    private let last = Atomic<UInt32>(0)

    /// Returns true if the last sampled look-up was for another hash. A cache of any size finds again what was requested
    /// just before, so a popular key in the sample need not cost each of its requests the same.
    func isOther(_ hash: UInt32) -> Bool {
        guard last.load(ordering: .relaxed) != hash else { return false }
        last.store(hash, ordering: .relaxed)
        return true
    }

    /// Removes an entry from the sample.
    func remove(_ hash: UInt32) {
        last.store(0, ordering: .relaxed)
        note { $0.remove(hash) }
    }

    /// Starts or stops learning. Returns the threshold of positions to sample.
    func set(_ onRound: (@Sendable () -> Void)?) -> UInt32 {
        state.withLock { state in
            state.onRound = onRound
            if onRound == nil {
                state.meter.stop()
                (state.before, state.loads, state.loadTime, state.estimate, state.seconds) = (nil, 0, 0, 0, 0)
            } else {
                state.meter.start()
            }
            return state.meter.threshold
        }
    }

    /// Notes a sampled request. Leaves the request out if another thread notes one at this moment: to wait would cost
    /// more than a request is worth.
    ///
    /// - Parameter isLookUp: true if the request counts as one of the round.
    func note(isLookUp: Bool = false, _ body: (inout CurveMeter) -> Void) {
        let onRound: (@Sendable () -> Void)?? = state.withLockIfAvailable { state in
            guard state.meter.isLearning else { return nil }
            body(&state.meter)
            if isLookUp { state.estimate += state.meter.weight }
            guard state.estimate >= CurveMeter.round else { return nil }
            state.estimate = 0
            return state.onRound
        }
        if case let onRound?? = onRound { onRound() }
    }

    /// Ends a round with the cache's statistics, and sets the sizes for the next.
    func endRound(
        _ now: CacheStatistics, upTo bytes: Int, meanCost: Double, at time: Duration
    ) -> (learnt: Learnt, threshold: UInt32)? {
        state.withLock { state in
            guard state.meter.isLearning else { return nil }
            // Requests before learning began are no part of the first round.
            let isFirst = state.before == nil, before = exchange(&state.before, now) ?? now
            let seconds = (time - exchange(&state.endedAt, time)) / .seconds(1)
            let misses = now.misses &- before.misses, lookUps = now.hits &- before.hits &+ misses
            // While the cache grows or shrinks, its misses belong to no one size: a loop has hits in a cache that grows,
            // and none at that size once the cache evicts.
            let evictions = now.evictions &- before.evictions
            let isSteady =
                abs(now.byteCount &- before.byteCount) < now.byteCount / 10 && evictions >= misses - misses / 4
            let curve = state.meter.endRound(requests: lookUps, misses: misses, held: isSteady ? now.byteCount : nil)
            // While the clock stands still, the rate is unknown.
            let rate = isFirst || seconds <= 0 ? nil : Double(max(0, lookUps)) / seconds
            state.meter.measure(upTo: bytes, meanCost: meanCost, perSecond: rate)
            state.loads = state.loads * CurveMeter.memory + Double(max(0, now.loads &- before.loads))
            let loadTime = max(.zero, now.loadTime - before.loadTime)
            state.loadTime = state.loadTime * CurveMeter.memory + Double(loadTime.inNanoseconds)
            let mean = state.loads > 0 ? state.loadTime / state.loads : nil
            if rate != nil { state.seconds = state.seconds * CurveMeter.memory + seconds }
            let usual = state.seconds > 0 ? curve.requests / state.seconds : nil
            return (Learnt(curve: curve, loadTime: mean, rate: usual), state.meter.threshold)
        }
    }
}

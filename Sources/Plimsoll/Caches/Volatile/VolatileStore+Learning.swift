import Synchronization

/// The miss curve of the store, and its share of the memory for volatile caches.
extension VolatileStore {
    func learn(onRound: (@Sendable () -> Void)?) {
        counters.sampled.pointee.store(learning.set(onRound), ordering: .relaxed)
    }

    /// Ends a round. Sizes are bytes of memory, so that shares are.
    func endRound(_ statistics: CacheStatistics, upTo bytes: Int, at now: Duration) -> Learnt? {
        var counted = statistics
        counted.byteCount = mapped
        let isEmpty = statistics.count == 0 || statistics.byteCount == 0
        let meanCost = isEmpty ? CurveMeter.usualCost : Double(counted.byteCount) / Double(statistics.count)
        let perMille = isEmpty ? 1000 : Double(counted.byteCount) * 1000 / Double(statistics.byteCount)
        memoryPerMille.store(Int(min(max(1, perMille), 1e6)), ordering: .relaxed)
        guard let (learnt, threshold) = learning.endRound(counted, upTo: bytes, meanCost: meanCost, at: now) else {
            return nil
        }
        counters.sampled.pointee.store(threshold, ordering: .relaxed)
        return learnt
    }

    func setShare(_ bytes: Int?) { withLog(()) { $0.share = max(0, bytes ?? 0) } }

    func evictAboveShare(_ count: Int) -> Int { withLog(0) { $0.evictAboveShare(count) } }

    /// Returns true if a request for a key with that hash is part of the sample.
    @inline(__always)
    func isSampled(_ hash: UInt64) -> Bool {
        // Relaxed: a stale number samples a request more or less.
        CurveMeter.position(of: UInt32(truncatingIfNeeded: hash)) < counters.sampled.pointee.load(ordering: .relaxed)
    }

    /// Adds a look-up to the sample.
    ///
    /// - Parameter found: the item found; `nil` for a miss.
    @inline(never)
    func sample(_ hash: UInt64, _ found: Found?) {
        let key = UInt32(truncatingIfNeeded: hash)
        guard learning.isOther(key) else { return }
        var isLacking = false
        learning.note(isLookUp: true) { isLacking = $0.lookUp(key) }
        guard isLacking, let found else { return }
        // The kernel, or another item, may have taken the place meanwhile. Then the header has other lengths, or none.
        let header = ItemHeader(at: found.base + found.word.offset)
        noteInsert(hash, cost: header.isPresent ? header.cost : found.count)
    }

    func noteInsert(_ hash: UInt64, cost: Int) {
        let (bytes, overflow) = cost.multipliedReportingOverflow(by: memoryPerMille.load(ordering: .relaxed))
        learning.note { $0.insert(UInt32(truncatingIfNeeded: hash), cost: overflow ? .max : bytes / 1000) }
    }

    /// Removes an item whose content is no longer valid from the sample.
    func noteRemoval(_ hash: UInt64) {
        if isSampled(hash) { learning.remove(UInt32(truncatingIfNeeded: hash)) }
    }
}

public import Synchronization

extension PurgeableCache: SharedPurgeable {
    package func learn(onRound: (@Sendable () -> Void)?) {
        counters.sampled.pointee.store(learning.set(onRound), ordering: .relaxed)
    }

    package func endRound(upTo bytes: Int, at now: Duration) -> Learnt? {
        let statistics = statistics, count = statistics.count
        let meanCost = count > 0 ? Double(statistics.byteCount) / Double(count) : CurveMeter.usualCost
        guard let (learnt, threshold) = learning.endRound(statistics, upTo: bytes, meanCost: meanCost, at: now)
        else { return nil }
        counters.sampled.pointee.store(threshold, ordering: .relaxed)
        return learnt
    }

    package func setShare(_ bytes: Int?) {
        counters.share.pointee.store(max(0, bytes ?? 0), ordering: .relaxed)
    }

    package func evictAboveShare(_ count: Int) -> Int {
        let share = counters.share.pointee.load(ordering: .relaxed)
        let excess = counters.total.pointee.load(ordering: .relaxed) - share
        return share > 0 && excess > 0 ? letGo(min(count, excess), reason: .evicted) : 0
    }

    /// Returns true if a request for a key with that hash is part of the sample.
    @inlinable @inline(__always)
    func isSampled(_ hash: UInt32) -> Bool {
        CurveMeter.position(of: hash) < counters.sampled.pointee.load(ordering: .relaxed)
    }

    /// Looks up the key of a sampled request.
    @inlinable @inline(never)
    func sampledValue(_ key: Key, _ hash: UInt32) -> Value? {
        sample(key, hash)
        return Layout.isTrivial ? readUnlocked(key, hash) : readOpen(key, hash)
    }

    /// Adds a look-up to the sample.
    @inlinable @inline(never)
    func sample(_ key: Key, _ hash: UInt32) {
        guard noteLookUp(hash) else { return }
        let now = counters.has(.expiry) ? self.now : .min
        let cost: Int? = withShard(of: hash) { shard, table in
            find(key, hash, in: shard).flatMap { table.isFresh($0, at: now, idleTime: nil) ? table.cost(of: $0) : nil }
        }
        if let cost { noteInsert(hash, cost: cost) }
    }

    /// Counts a look-up. Returns true if the sample lacks the entry.
    @usableFromInline
    func noteLookUp(_ hash: UInt32) -> Bool {
        guard learning.isOther(hash) else { return false }
        var isLacking = false
        learning.note(isLookUp: true) { isLacking = $0.lookUp(hash) }
        return isLacking
    }

    @usableFromInline
    func noteInsert(_ hash: UInt32, cost: Int) { learning.note { $0.insert(hash, cost: cost) } }
}

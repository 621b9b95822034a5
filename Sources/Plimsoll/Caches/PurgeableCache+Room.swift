import CPlimsollProcess
public import Synchronization

// The bound of the sum of costs, and making room under it.
extension PurgeableCache {
    /// Whether there would be room for `cost` if everything were given up for it; nothing is given up where that is not so.
    @usableFromInline
    func mayFit(_ cost: Int) -> Bool {
        guard let room = meter.load()?.room, cost > room else { return true }
        return cost - room <= counters.total.pointee.load(ordering: .relaxed)
    }

    /// Counts in what is wanted and not yet held, before the entry is linked, so that the sum never exceeds the bound. False if something has to go first.
    ///
    /// What is evicted for the new entry stays counted and declared to the meter until that takes its place. Given back first, a reading in between would take
    /// the dip for the cache's size and let it grow no further: entry by entry down to nothing (measured).
    ///
    /// - Parameter existing: cost of what the entry replaces.
    @inlinable @inline(__always)
    func reserve(_ room: inout CacheRoom, besides existing: Int) -> Bool {
        let lacking = room.wanted &- room.held &- existing
        var total = counters.total.pointee.load(ordering: .relaxed)
        while true {
            // Also when nothing is lacking: the bound may have been lowered.
            // Subtracted, as the sum of two costs may be more than an integer holds.
            guard lacking <= counters.bound.pointee.load(ordering: .relaxed) &- total else { return false }
            if lacking <= 0 { return true }
            // Relaxed: whoever lowers the bound waits for this shard's lock before looking at the total, so that nobody adds to it by the old bound afterwards.
            let (exchanged, now) = counters.total.pointee.weakCompareExchange(expected: total, desired: total &+ lacking, ordering: .relaxed)
            if exchanged { break }
            total = now
        }
        guard !counters.has(.meter) || mayTake(lacking) else {
            counters.total.pointee.wrappingSubtract(lacking, ordering: .relaxed)
            return false
        }
        room.held &+= lacking
        return true
    }

    @usableFromInline
    func mayTake(_ cost: Int) -> Bool { meter.load()?.take(cost) ?? true }

    /// Gives back what is held of the total and not linked.
    @usableFromInline
    func giveUp(_ room: inout CacheRoom) {
        if room.held != 0 { forget(room.held) }
        room.held = 0
    }

    @usableFromInline
    func giveUpSurplus(_ room: inout CacheRoom) {
        forget(room.held - room.wanted)
        room.held = room.wanted
    }

    @usableFromInline
    func forget(_ cost: Int) {
        counters.total.pointee.wrappingSubtract(cost, ordering: .relaxed)
        meter.load()?.give(cost)
    }

    /// Whether more has to go than is held already.
    private func isShort(_ room: CacheRoom) -> Bool {
        let free = counters.bound.pointee.load(ordering: .relaxed) - counters.total.pointee.load(ordering: .relaxed)
        return room.wanted - room.held - room.replaced > min(free, meter.load()?.room ?? .max)
    }

    /// How often an insert waits for room that others hold, each time at most until they have run: far more than ever needed, but not for ever.
    private static var mostAttempts: Int { 1000 }

    /// Evicts a few entries from each shard that has its part, until there may be enough. False if there is nothing left that may go.
    @usableFromInline
    func evictElsewhere(_ room: inout CacheRoom, _ leaving: inout Leaving) -> Bool {
        // With all the others gone there would still be too little.
        let most = counters.bound.pointee.load(ordering: .relaxed) - room.wanted + room.replaced
        if counters.has(.pins), sum({ $0.pinned.cost }) > most { return false }
        var count = 0, linked = 0
        // Those with the most first; and if nobody has its part any more, everybody.
        for isFair in [true, false] {
            directory.forEach(from: counters.nextStart) { shard in
                shard.lock.pointee.withLock { table in
                    Layout.writing(shard) {
                        let part = isFair ? counters.total.pointee.load(ordering: .relaxed) >> (table.depth + 1) : -1
                        for _ in 0..<8 {
                            guard isShort(room), let victim = table.evict(over: part) else { break }
                            count += 1
                            room.held += victim.cost
                            discard(victim.slot, cost: victim.cost, .evicted, shard, &table, &leaving)
                        }
                    }
                    if !isFair { linked &+= table.cost }
                }
                return isShort(room)
            }
            if count > 0 { room.hasEvicted = true }
            if count > 0 || !isShort(room) { return true }
        }
        // What is counted and in no shard is held by others, who may wait for what we hold: whoever lets go of it lets them end. They may also have lost
        // their processor, so they are let go first.
        let held = room.held
        giveUp(&room)
        room.attempts += 1
        guard held == 0 else { return true }
        guard room.attempts < Self.mostAttempts, counters.total.pointee.load(ordering: .relaxed) > linked else { return false }
        plimsoll_yield()
        return true
    }
}

/// What an insert needs of the total, and has of it so far.
@frozen @usableFromInline
struct CacheRoom {
    @usableFromInline let wanted: Int
    /// Counted in the total and declared to the meter, but of no entry.
    @usableFromInline var held = 0
    /// Cost of what had its key when last looked at.
    @usableFromInline var replaced = 0
    /// Something of the shard that the newcomer belongs to may have gone for it.
    @usableFromInline var hasEvicted = false
    /// How often nothing was found that might go.
    @usableFromInline var attempts = 0

    @inlinable
    init(wanted: Int) { self.wanted = wanted }
}

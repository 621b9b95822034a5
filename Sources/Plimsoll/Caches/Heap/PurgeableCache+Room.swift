import CPlimsollMemory
import CPlimsollProcess
public import Synchronization

// Reservations under the bound of the sum of costs.
extension PurgeableCache {
    /// Returns true if `cost` would fit after evicting everything. If false, nothing is evicted.
    @usableFromInline
    func mayFit(_ cost: Int) -> Bool {
        guard let room = meter.load()?.room, cost > room else { return true }
        // Caches above their share make room for one below.
        let mine = max(
            counters.total.pointee.load(ordering: .relaxed), counters.share.pointee.load(ordering: .relaxed))
        return cost - room <= mine
    }

    /// Reserves the missing part of the cost before the entry is linked, so that the sum never exceeds the bound.
    /// Returns false if something must be evicted first.
    ///
    /// The cost of entries evicted for the new entry stays counted, and declared to the meter, until the new entry
    /// replaces them. If that cost were released first, a reading in between would take the dip for the cache's
    /// size and allow no further growth. The cache would shrink entry by entry to nothing (measured).
    ///
    /// - Parameter existing: the cost of the entry to replace.
    @inlinable @inline(__always)
    func reserve(_ room: inout CostReservation, besides existing: Int) -> Bool {
        let lacking = room.wanted &- room.held &- existing
        var total = counters.total.pointee.load(ordering: .relaxed)
        while true {
            // Checked even if nothing is lacking: the bound may have been lowered. Written as a subtraction,
            // because the sum of two costs may overflow.
            guard lacking <= counters.bound.pointee.load(ordering: .relaxed) &- total else { return false }
            if lacking <= 0 { return true }
            // Relaxed: a thread that lowers the bound waits for this shard's lock before it reads the total. No
            // insert adds to the total under the old bound afterwards.
            let (exchanged, now) = counters.total.pointee.weakCompareExchange(
                expected: total, desired: total &+ lacking, ordering: .relaxed)
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
    func mayTake(_ cost: Int) -> Bool { meter.load()?.take(cost, leavesReserve: isAboveShare(with: 0)) ?? true }

    /// Returns true if the cache has a share, and would hold more with so many bytes beyond the total.
    private func isAboveShare(with more: Int) -> Bool {
        let share = counters.share.pointee.load(ordering: .relaxed)
        return share > 0 && counters.total.pointee.load(ordering: .relaxed) &+ more > share
    }

    /// Returns true if caches above their share may make room for this one, and have not been asked yet.
    @usableFromInline
    func mayAskOthers(_ room: CostReservation) -> Bool {
        let share = counters.share.pointee.load(ordering: .relaxed)
        guard share > 0, !room.hasAsked, counters.total.pointee.load(ordering: .relaxed) < share else { return false }
        // Not if the cache's own bound is what lacks room.
        let bound = counters.bound.pointee.load(ordering: .relaxed)
        return room.wanted - room.replaced <= bound - counters.total.pointee.load(ordering: .relaxed)
    }

    /// Releases the reservation that belongs to no entry.
    @usableFromInline
    func giveUp(_ room: inout CostReservation) {
        if room.held != 0 { forget(room.held) }
        room.held = 0
    }

    @usableFromInline
    func giveUpSurplus(_ room: inout CostReservation) {
        forget(room.held - room.wanted)
        room.held = room.wanted
    }

    @usableFromInline
    func forget(_ cost: Int) {
        counters.total.pointee.wrappingSubtract(cost, ordering: .relaxed)
        meter.load()?.give(cost)
    }

    /// Returns true if more must be evicted than is reserved already. Returns false if the bound has become so low that
    /// no eviction helps: the next attempt is refused.
    private func isShort(_ room: CostReservation) -> Bool {
        let bound = counters.bound.pointee.load(ordering: .relaxed)
        guard room.wanted <= bound else { return false }
        let free = bound - counters.total.pointee.load(ordering: .relaxed)
        let lacking = room.wanted - room.held - room.replaced
        return lacking > min(free, meter.load()?.room(leavesReserve: isAboveShare(with: lacking)) ?? .max)
    }

    /// Returns true if the pinned entries leave enough room, under the bound and in memory, with all others evicted. If
    /// false, nothing is evicted.
    private func mayFitBesidePins(_ room: CostReservation) -> Bool {
        // An entry that is to be replaced makes room for its successor, even if pinned.
        let pinned = max(0, sum { $0.pinned.cost } - (room.keepsPin ? room.replaced : 0))
        let total = counters.total.pointee.load(ordering: .relaxed)
        let (inMemory, overflow) = total.addingReportingOverflow(meter.load()?.room ?? .max)
        let bound = counters.bound.pointee.load(ordering: .relaxed)
        return room.wanted <= min(bound, overflow ? .max : inMemory) - pinned
    }

    /// Bound on the number of times an insert waits for room that other inserts have reserved. Far more than ever needed,
    /// but finite.
    private static var mostAttempts: Int { 1000 }
    /// Number of waits that only yield the processor.
    private static var mostYields: Int { 100 }

    /// Evicts a few entries from each shard that holds its share, until there may be enough room. Returns false if
    /// nothing is left to evict.
    @usableFromInline
    func evictElsewhere(_ room: inout CostReservation, _ leaving: inout Leaving) -> Bool {
        if mayAskOthers(room) {
            room.hasAsked = true
            let lacking = room.wanted - room.held - room.replaced
            // Listeners of the other caches run on this thread. A listener that lowers this cache's limit waits until
            // no reservation is above the new limit.
            giveUp(&room)
            _ = meter.load()?.makeRoom(lacking)
            return true
        }
        if counters.has(.pins), !mayFitBesidePins(room) { return false }
        var count = 0
        // Shards above their share come first. If there is none, all shards are tried.
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
                }
                return isShort(room)
            }
            if count > 0 { room.hasEvicted = true }
            if count > 0 || !isShort(room) { return true }
        }
        // Other inserts may have reserved the rest and be waiting for our reservation. Release ours first so they
        // can finish. They may also have been preempted, so yield the processor to them.
        let held = room.held
        giveUp(&room)
        room.attempts += 1
        guard held == 0 else { return true }
        guard room.attempts < Self.mostAttempts,
            counters.total.pointee.load(ordering: .relaxed) > sum({ $0.pinned.cost })
        else { return false }
        // On another processor nothing may wait to run, and a yield returns at once, while the owner of the reservation
        // waits for its own processor.
        if room.attempts > Self.mostYields { plimsoll_nap(50_000) } else { plimsoll_yield() }
        return true
    }
}

/// Room in the total that an insert needs and has reserved so far.
@frozen @usableFromInline
struct CostReservation {
    @usableFromInline let wanted: Int
    /// Bytes counted in the total and declared to the meter, but part of no entry.
    @usableFromInline var held = 0
    /// Cost of the entry under the same key, when last read.
    @usableFromInline var replaced = 0
    /// True if that entry is pinned, and its successor will be.
    @usableFromInline var keepsPin = false
    /// True if entries of the newcomer's own shard may have been evicted.
    @usableFromInline var hasEvicted = false
    /// True if caches above their share were asked to make room.
    @usableFromInline var hasAsked = false
    /// Number of times nothing was found to evict.
    @usableFromInline var attempts = 0

    @inlinable
    init(wanted: Int) { self.wanted = wanted }
}

extension PurgeableCache {
    /// Moves half of a full shard into a new shard, keeping the order of the queues.
    @usableFromInline
    func split(_ hash: UInt32) {
        let _: Bool = withShardToWrite(of: hash) { old, table in
            guard table.count >= Self.splitCount, table.depth < directory.depth else { return false }
            let depth = table.depth + 1
            let new = Layout.shard(depth: depth)
            // No other thread knows the new shard yet, so taking the second lock cannot deadlock.
            new.lock.pointee.withLock { other in
                table.split(into: &other, bit: 32 - depth) { from, to in
                    let (from, to) = (old.place(from, Layout.pairSize).pair, new.place(to, Layout.pairSize).pair)
                    Layout.move(from, to)
                }
            }
            directory.set(directory.range(of: hash | 1 << (32 - depth), depth: depth), new)
            return true
        }
    }
}

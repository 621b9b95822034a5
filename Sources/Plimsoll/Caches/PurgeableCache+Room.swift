import CPlimsollProcess
public import Synchronization

extension PurgeableCache {
    /// How an attempt to put something in has ended.
    @usableFromInline
    enum Attempt: Sendable {
        case done(splits: Bool)
        /// Not revoked, but there is not enough room in this shard.
        case lacksRoom
        case refused
        /// What it was loaded for is there no more.
        case revoked
    }

    /// What leaves for one insert: nearly always one entry or none.
    @usableFromInline
    struct Leaving: ~Copyable {
        @usableFromInline var first: CacheEntry<Key, Value>?
        @usableFromInline var others: [CacheEntry<Key, Value>] = []

        @inlinable
        init() {}

        @inlinable
        mutating func append(_ entry: CacheEntry<Key, Value>) { if first == nil { first = entry } else { others.append(entry) } }
    }

    /// - Parameter load: the load that brought it; what was revoked meanwhile, or was to replace what is gone, is not kept.
    @inlinable
    func insert(_ value: Value, forKey key: Key, cost: Int, tags: [String], times: CacheTimes?, of load: TaggedLoad?) -> Bool {
        guard cost >= 0, cost <= counters.bound.pointee.load(ordering: .relaxed), !counters.has(.meter) || mayFit(cost) else {
            counters.count(.rejection)
            return false
        }
        let hash = hasher.of(key)
        var room = CacheRoom(wanted: cost), leaving = Leaving()
        while true {
            let attempt: Attempt = withShard(of: hash, isWriting: true) { shard, table in
                if let load, !isWanted(load, key, hash, shard, &table) { return .revoked }
                return put(value, key, hash, tags, times, shard, &table, &room, &leaving)
            }
            switch attempt {
            case .done(let splits):
                if room.held > 0 { giveUp(&room) }
                if splits { split(hash) }
                if hasListeners { tell(leaving) }
                return true
            case .lacksRoom:
                if evictElsewhere(&room, &leaving) { continue }
                fallthrough
            case .refused:
                counters.count(.rejection)
                fallthrough
            case .revoked:
                giveUp(&room)
                if hasListeners { tell(leaving) }
                return false
            }
        }
    }

    /// In a locked shard: makes room there, and puts it in.
    @inlinable @inline(__always)
    func put(
        _ value: Value, _ key: Key, _ hash: UInt32, _ tags: [String], _ times: CacheTimes?, _ shard: CacheShard, _ table: inout CacheTable,
        _ room: inout CacheRoom, _ leaving: inout Leaving
    ) -> Attempt {
        if let times { expire(at: times.now, shard, &table, &room, &leaving) }
        var existing = find(key, hash, in: shard)
        while true {
            room.replaced = existing.map { table.cost(of: $0) } ?? 0
            if reserve(&room, besides: room.replaced) { break }
            // Where much is pinned nothing goes before it is known to be enough.
            if counters.has(.pins), !room.hasEvicted, !table.mayGive(room.wanted &- room.held &- room.replaced) { return .lacksRoom }
            // From here as long as it has its part; what is larger than that comes from all.
            guard table.cost > counters.total.pointee.load(ordering: .relaxed) >> (table.depth &+ 1), let victim = table.evict() else {
                return .lacksRoom
            }
            room.hasEvicted = true
            room.held &+= table.cost(of: victim)
            // Whoever has lowered the bound waits for what is more than we need.
            if room.held > room.wanted { giveUpSurplus(&room) }
            let isExisting = victim == existing
            if isExisting { existing = nil }
            discard(victim, isExisting ? .replaced : .evicted, shard, &table, &leaving)
        }
        if let existing {
            room.held &+= table.cost(of: existing)
            replace(existing, key, value, tags, shard, &table, &room, &leaving)
        } else {
            guard let slot = table.add(hash, cost: room.wanted) else { return .refused }
            existing = slot
            Layout.fill(shard.place(slot, Layout.pairSize).pair, key, value)
            if !tags.isEmpty { table.tag(slot, tags) }
        }
        if let times, let existing { table.setTimes(existing, times.times, at: times.now) }
        room.held &-= room.wanted
        if room.hasEvicted || table.hasForgotten { table.remember() }
        return .done(splits: table.count > Self.splitCount && table.depth < directory.depth)
    }

    /// Takes out some whose time has passed: they make room, too.
    @inlinable
    func expire(at now: Int64, _ shard: CacheShard, _ table: inout CacheTable, _ room: inout CacheRoom, _ leaving: inout Leaving) {
        for _ in 0..<16 {
            guard let slot = table.expire(at: now) else { return }
            room.held &+= table.cost(of: slot)
            discard(slot, .expired, shard, &table, &leaving)
        }
    }

    /// Another value for what is in `slot`, for which room has been made.
    @inlinable
    func replace(
        _ slot: UInt32, _ key: Key, _ value: Value, _ tags: [String], _ shard: CacheShard, _ table: inout CacheTable, _ room: inout CacheRoom,
        _ leaving: inout Leaving
    ) {
        let place = shard.place(slot, Layout.pairSize)
        keep(place.pair, cost: table.cost(of: slot), .replaced, &leaving)
        counters.count(.replacement)
        Layout.fill(place.pair, key, value)
        place.use()
        table.replaced(slot, cost: room.wanted, tags)
    }

    /// Empties `slot`, which has been unlisted.
    @inlinable @inline(__always)
    func discard(_ slot: UInt32, _ reason: RemovalReason, _ shard: CacheShard, _ table: inout CacheTable, _ leaving: inout Leaving) {
        keep(shard.place(slot, Layout.pairSize).pair, cost: table.cost(of: slot), reason, &leaving)
        switch reason {
        case .evicted: table.evictions &+= 1
        case .expired: counters.count(.expiry)
        case .replaced: counters.count(.replacement)
        default: break
        }
        table.recycle(slot)
    }

    /// Moves key and value of `pair` to where they may die; trivial ones that nobody wants to hear of just go.
    @inlinable @inline(__always)
    func keep(_ pair: UnsafeMutableRawPointer, cost: Int, _ reason: RemovalReason, _ leaving: inout Leaving) {
        if Layout.isTrivial, !hasListeners { return }
        leaving.append(CacheEntry(key: Layout.key(pair).move(), value: Layout.value(pair).move(), cost: cost, reason: reason))
    }

    @inlinable @inline(__always)
    var hasListeners: Bool { counters.has(.listeners) }

    func tell(_ entry: borrowing Entry) {
        guard hasListeners else { return }
        for listener in listeners.withLock({ $0 }) { listener(entry.key, entry.value, entry.reason) }
    }

    @usableFromInline
    func tell(_ leaving: borrowing Leaving) {
        if let first = leaving.first { tell(first) }
        for entry in leaving.others { tell(entry) }
    }

    // MARK: Room

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
                            guard isShort(room), table.cost > part, let victim = table.evict() else { break }
                            count += 1
                            room.held += table.cost(of: victim)
                            discard(victim, .evicted, shard, &table, &leaving)
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

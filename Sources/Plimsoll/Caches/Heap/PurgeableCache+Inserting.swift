public import Synchronization

extension PurgeableCache {
    /// Outcome of one attempt to insert.
    @usableFromInline
    enum Attempt: Sendable {
        case done(splits: Bool)
        /// The load is not revoked, but this shard has too little room.
        case lacksRoom
        case refused
        /// The load was overtaken: by a removal, a purge of a tag, or an insert.
        case revoked
    }

    /// Entries that leave for one insert: nearly always one or none.
    @usableFromInline
    struct Leaving: ~Copyable {
        @usableFromInline var first: CacheEntry<Key, Value>?
        @usableFromInline var others: [CacheEntry<Key, Value>]?
        /// Number of changes before the first entry left.
        @usableFromInline let changes: UInt64

        @inlinable
        init(after changes: UInt64 = 0) { self.changes = changes }

        @inlinable
        mutating func append(_ entry: CacheEntry<Key, Value>) {
            if first == nil {
                first = entry
            } else if others?.append(entry) == nil {
                others = [entry]
            }
        }
    }

    /// Inserts `value` under `key` at `cost`.
    ///
    /// - Parameter load: the load that made the value. The value is not kept if the load was revoked, the entry to
    ///   replace is gone, or another value was inserted during the load.
    @inlinable @inline(never)
    func insert(_ value: Value, forKey key: Key, cost: Int, tags: [String], times: CacheTimes?, of load: LoadOrigin?)
        -> Bool
    {
        // A load that began before has an older value, and may end after this one has been evicted. A fence would cost
        // every insert too much, so an insert at the very instant of a cache's first load may miss that load.
        if load == nil, counters.has(.loads) { revokeLoad(of: key) }
        guard cost >= 0, cost <= counters.bound.pointee.load(ordering: .relaxed), !counters.has(.meter) || mayFit(cost)
        else {
            counters.count(.rejection)
            return false
        }
        let hash = hasher.of(key)
        var room = CostReservation(wanted: cost), leaving = Leaving(after: hasListeners ? changes : 0)
        while true {
            let attempt: Attempt = withShardToWrite(of: hash) { shard, table in
                if let load, !isWanted(load, key, hash, shard, &table) { return .revoked }
                return put(value, key, hash, tags, times, shard, &table, &room, &leaving)
            }
            switch attempt {
            case .done(let splits):
                if room.held > 0 { giveUp(&room) }
                if splits { split(hash) }
                if isSampled(hash) { noteInsert(hash, cost: cost) }
                if hasListeners { notify(leaving) }
                return true
            case .lacksRoom:
                if evictElsewhere(&room, &leaving) { continue }
                fallthrough
            case .refused:
                counters.count(.rejection)
                fallthrough
            case .revoked:
                giveUp(&room)
                if hasListeners { notify(leaving) }
                return false
            }
        }
    }

    /// Makes room in a locked shard and inserts the value there.
    @inlinable @inline(__always)
    func put(
        _ value: Value, _ key: Key, _ hash: UInt32, _ tags: [String], _ times: CacheTimes?, _ shard: CacheShard,
        _ table: inout CacheTable,
        _ room: inout CostReservation, _ leaving: inout Leaving
    ) -> Attempt {
        if let times { expire(at: times.now, shard, &table, &room, &leaving) }
        let (existing, empty) = locate(key, hash, in: shard)
        guard existing == nil, room.held == 0, let slot = renew(hash, empty, room.wanted, &table) else {
            return makeRoomAndPut(value, key, hash, tags, times, existing, shard, &table, &room, &leaving)
        }
        discard(slot, cost: room.wanted, .evicted, shard, &table, &leaving)
        fill(slot, value, key, tags, times, shard, &table)
        return .done(splits: false)
    }

    /// Slow path of `put`: handles all cases but one eviction for one insert.
    @inlinable @inline(never)
    func makeRoomAndPut(
        _ value: Value, _ key: Key, _ hash: UInt32, _ tags: [String], _ times: CacheTimes?, _ found: UInt32?,
        _ shard: CacheShard,
        _ table: inout CacheTable, _ room: inout CostReservation, _ leaving: inout Leaving
    ) -> Attempt {
        var existing = found
        while true {
            // The bound may have been lowered since the insert began. No eviction makes room beyond the bound.
            guard room.wanted <= counters.bound.pointee.load(ordering: .relaxed) else { return .refused }
            room.replaced = existing.map { table.cost(of: $0) } ?? 0
            if reserve(&room, besides: room.replaced) { break }
            let hasPins = counters.has(.pins)
            if hasPins { room.keepsPin = existing.map { table.isPinned($0) } ?? false }
            // Others make room first, while this cache is below its share.
            if mayAskOthers(room) { return .lacksRoom }
            // With many pinned entries, evict nothing before there is known to be enough.
            let lacking = room.wanted &- room.held &- room.replaced
            if hasPins, !room.hasEvicted, !table.mayGive(lacking, besides: existing) { return .lacksRoom }
            guard let victim = table.evict(over: part(table.depth)) else { return .lacksRoom }
            room.hasEvicted = true
            room.held &+= victim.cost
            // A thread that has lowered the bound waits for the surplus.
            if room.held > room.wanted { giveUpSurplus(&room) }
            let isExisting = victim.slot == existing
            if isExisting { existing = nil }
            discard(victim.slot, cost: victim.cost, isExisting ? .replaced : .evicted, shard, &table, &leaving)
        }
        if let existing {
            room.held &+= table.cost(of: existing)
            replace(existing, key, value, tags, times, shard, &table, &room, &leaving)
        } else {
            guard let slot = table.add(hash, cost: room.wanted, hasEvicted: room.hasEvicted) else { return .refused }
            fill(slot, value, key, tags, times, shard, &table)
        }
        room.held &-= room.wanted
        return .done(splits: table.count >= Self.splitCount && table.depth < directory.depth)
    }

    /// Writes key, value, tags and times into the empty `slot`.
    @inlinable @inline(__always)
    func fill(
        _ slot: UInt32, _ value: Value, _ key: Key, _ tags: [String], _ times: CacheTimes?, _ shard: CacheShard,
        _ table: inout CacheTable
    ) {
        Layout.fill(shard.place(slot, Layout.pairSize).pair, key, value)
        if !tags.isEmpty { table.tag(slot, tags) }
        if let times { table.setTimes(slot, times.times, at: times.now) }
    }

    /// Returns the share that a shard of `depth` must exceed before an insert evicts there. Larger entries evict
    /// from all shards.
    @inlinable @inline(__always)
    func part(_ depth: UInt32) -> Int { counters.total.pointee.load(ordering: .relaxed) &>> (depth &+ 1) }

    /// Returns the slot of a victim whose cost equals the newcomer's, if one eviction suffices. The total then
    /// stays the same.
    @inlinable @inline(__always)
    func renew(_ hash: UInt32, _ empty: UInt32, _ cost: Int, _ table: inout CacheTable) -> UInt32? {
        let free = counters.bound.pointee.load(ordering: .relaxed) &- counters.total.pointee.load(ordering: .relaxed)
        guard free >= 0, free < cost else { return nil }
        return table.renew(hash, empty, cost: cost, over: part(table.depth))
    }

    /// Takes out some expired entries, which also makes room.
    @inlinable
    func expire(
        at now: Int64, _ shard: CacheShard, _ table: inout CacheTable, _ room: inout CostReservation,
        _ leaving: inout Leaving
    ) {
        for _ in 0..<16 {
            guard let slot = table.expire(at: now) else { return }
            let cost = table.cost(of: slot)
            room.held &+= cost
            discard(slot, cost: cost, .expired, shard, &table, &leaving)
        }
    }

    /// Replaces the entry in `slot`. Room has been reserved.
    @inlinable
    func replace(
        _ slot: UInt32, _ key: Key, _ value: Value, _ tags: [String], _ times: CacheTimes?, _ shard: CacheShard,
        _ table: inout CacheTable,
        _ room: inout CostReservation, _ leaving: inout Leaving
    ) {
        let place = shard.place(slot, Layout.pairSize)
        keep(slot, place.pair, cost: table.cost(of: slot), .replaced, &table, &leaving)
        counters.count(.replacement)
        Layout.fill(place.pair, key, value)
        place.use()
        table.replaced(slot, cost: room.wanted, tags)
        if let times { table.setTimes(slot, times.times, at: times.now) }
    }

    /// Empties `slot`, which is unlisted already.
    @inlinable @inline(__always)
    func discard(
        _ slot: UInt32, cost: Int, _ reason: RemovalReason, _ shard: CacheShard, _ table: inout CacheTable,
        _ leaving: inout Leaving
    ) {
        keep(slot, shard.place(slot, Layout.pairSize).pair, cost: cost, reason, &table, &leaving)
        switch reason {
        case .evicted: table.evictions &+= 1
        case .expired: counters.count(.expiry)
        case .replaced: counters.count(.replacement)
        default: break
        }
    }

    /// Moves key and value of `pair`, the contents of `slot`, out, to be destroyed after the lock. Trivial pairs are
    /// dropped if there is no listener.
    @inlinable @inline(__always)
    func keep(
        _ slot: UInt32, _ pair: UnsafeMutableRawPointer, cost: Int, _ reason: RemovalReason,
        _ table: inout CacheTable, _ leaving: inout Leaving
    ) {
        if Layout.isTrivial, !hasListeners { return }
        leaving.append(
            CacheEntry(
                key: Layout.key(pair).move(), value: Layout.value(pair).move(), cost: cost, reason: reason,
                deadlines: hasListeners ? table.deadlines(of: slot) : (.max, .max)))
    }

    @inlinable @inline(__always)
    var hasListeners: Bool { counters.has(.listeners) }

    /// Number of changes so far, for the listeners of entries that leave from now on.
    @usableFromInline
    var changes: UInt64 { CacheInvalidation.changes.load(ordering: .relaxed) }

    /// Calls the listeners with `entry`.
    ///
    /// - Parameters:
    ///   - changes: the number of changes before the entry left, or less.
    ///   - isInvalid: true if the entry left because its content may no longer be true.
    func notify(_ entry: borrowing Entry, after changes: UInt64 = 0, isInvalid: Bool = false) {
        guard hasListeners else { return }
        let notice = RemovalNotice(
            reason: entry.reason, isInvalid: isInvalid, changes: changes,
            left: TimeLeft(toLive: left(entry.deadlines.expires), toIdle: left(entry.deadlines.idles)))
        for listener in listeners.withLock({ $0 }) { listener(entry.key, entry.value, notice) }
    }

    private func left(_ deadline: Int64) -> Duration? {
        deadline == .max ? nil : .nanoseconds(deadline) - time.elapsed()
    }

    @usableFromInline
    func notify(_ leaving: borrowing Leaving) {
        if let first = leaving.first { notify(first, after: leaving.changes) }
        for entry in leaving.others ?? [] { notify(entry, after: leaving.changes) }
    }
}

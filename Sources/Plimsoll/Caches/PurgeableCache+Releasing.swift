import Synchronization

extension PurgeableCache {
    public var heldBytes: Int { byteCount }

    /// Lets go of at least `target` bytes, coldest first, evenly over the shards. Allocates nothing.
    public func release(_ target: Int) -> Int { letGo(target, reason: .purged) }

    public func attach(_ meter: ChargeMeter) -> Bool {
        // A second manager finds the first one's meter: only one can bound the growth.
        guard self.meter.load() == nil, self.meter.storeIfNil(meter) === meter else { return false }
        counters.use(.meter)
        meter.takeAnyway(counters.total.pointee.load(ordering: .relaxed))
        return true
    }

    /// Evicts `count` entries, or all that may go, least worth keeping first; for who bounds something else than costs.
    ///
    /// - Returns: number of entries evicted.
    @discardableResult
    public func evict(count: Int) -> Int {
        takeColdest(.evicted) { taken, _ in taken < count }.count
    }

    func setLimit(_ new: Int) {
        // Of several threads that set it, listeners among them, the last to come decides both numbers.
        let turn = limitChanges.withLock { turn in
            turn += 1
            if new > counters.limit.pointee.load(ordering: .relaxed) { counters.limit.pointee.store(new, ordering: .releasing) }
            counters.bound.pointee.store(new, ordering: .relaxed)
            return turn
        }
        // Nobody who went by the old bound is under way any more.
        _ = sum { _ in 0 }
        let pause = Parker()
        // Down to the bound that is in force: another thread may have raised it meanwhile.
        while case let excess = counters.total.pointee.load(ordering: .relaxed) - counters.bound.pointee.load(ordering: .relaxed), excess > 0 {
            if letGo(excess, reason: .evicted) > 0 { continue }
            // Others may hold what they have evicted and not linked yet: they link it or give it up in a moment. What is pinned stays.
            if pinnedCount > 0 { break }
            pause.park(atMost: .microseconds(50))
        }
        limitChanges.withLock { if $0 == turn { counters.limit.pointee.store(new, ordering: .releasing) } }
    }

    func letGo(_ target: Int, reason: RemovalReason) -> Int {
        let bytes = takeColdest(reason) { _, bytes in bytes < target }.bytes
        if bytes > 0 { giveBackPages() }
        return bytes
    }

    /// Takes out what is coldest as long as `wantsMore`, told the number of entries and their costs so far. Allocates nothing.
    private func takeColdest(_ reason: RemovalReason, _ wantsMore: (Int, Int) -> Bool) -> (count: Int, bytes: Int) {
        var count = 0, bytes = 0, isEmpty = false
        // No more than there was: what listeners put back meanwhile is not waited for.
        let most = self.count
        let batch = takeBatch()
        // A small slice from each shard in turn keeps them even; the last ones are taken no further than needed.
        while count < most, wantsMore(count, bytes), !isEmpty {
            isEmpty = true
            directory.forEach(from: counters.nextStart) { shard in
                shard.lock.pointee.withLock { table in
                    Layout.writing(shard) {
                        while !batch.isFull, count < most, wantsMore(count, bytes), let victim = table.evict() {
                            count += 1
                            let (sum, overflow) = bytes.addingReportingOverflow(victim.cost)
                            bytes = overflow ? .max : sum
                            batch.append(takeUnlisted(victim.slot, shard, &table, reason))
                        }
                    }
                }
                if batch.count > 0 { isEmpty = false }
                settle(batch)
                return count < most && wantsMore(count, bytes)
            }
        }
        putBack(batch)
        return (count, bytes)
    }

    /// Moves what is left together in shards that have become much emptier, a little at a time, and gives the kernel the pages behind.
    private func giveBackPages() {
        directory.forEach { shard in
            var isBegun = false, isOver = false
            while !isOver {
                isOver = shard.lock.pointee.withLock { table in
                    guard isBegun || table.isSparse else { return true }
                    isBegun = true
                    return Layout.writing(shard) {
                        table.compact(atMost: 64) { from, to in
                            let (from, to) = (shard.place(from, Layout.pairSize).pair, shard.place(to, Layout.pairSize).pair)
                            Layout.move(from, to)
                        }
                    }
                }
            }
            return true
        }
    }

    /// Takes out everything. Nobody waits long: contents go as a whole, and if there are many, a thread of its own ends them. With a listener, who hears of each,
    /// it is done here, in slices.
    public func removeAll() {
        if hasListeners { return invalidating { removeEach() } }
        var remains: [CacheRemains<Key, Value>] = [], count = 0
        let closing = closeAll()
        directory.forEach { shard in
            let (old, cost, entries) = shard.lock.pointee.withLock { table in
                // Opened again meanwhile, or closed by another, it has another number.
                if let closing, shard.openness.pointee.load(ordering: .relaxed) == closing.ticket {
                    if closing.isAnyLent { Layout.shareLent(shard) }
                    shard.openness.pointee.store(0, ordering: .relaxed)
                }
                let (cost, entries) = (table.cost, table.count)
                return (Layout.writing(shard) { table.clear() }, cost, entries)
            }
            remains.append(CacheRemains(old, cost: cost))
            count += entries
            counters.total.pointee.wrappingSubtract(cost, ordering: .relaxed)
            return true
        }
        CacheRemains.end(remains, count: count, meter: meter.load())
    }

    /// Closes all shards for the price of one: where its ticket still stands, nobody reads without the lock.
    private func closeAll() -> (ticket: UInt, isAnyLent: Bool)? {
        guard !Layout.isTrivial, counters.has(.visitors) else { return nil }
        let ticket = ThreadSeats.ticket()
        var isAnyClosed = false
        directory.forEach { shard in
            shard.lock.pointee.withLock { _ in
                guard shard.openness.pointee.load(ordering: .relaxed) == CacheShard.open else { return }
                shard.openness.pointee.store(ticket, ordering: .relaxed)
                isAnyClosed = true
            }
            return true
        }
        return (ticket, isAnyClosed && ThreadSeats.awaitLeaving { directory.contains($0) })
    }

    private func removeEach() {
        let batch = takeBatch()
        directory.forEach { shard in
            // From the last on: what is moved together meanwhile comes further to the front, and what a listener puts in, into what has just been left.
            var position: UInt32?, isOver = false
            while !isOver {
                isOver = shard.lock.pointee.withLock { table in
                    Layout.writing(shard) {
                        var next = min(position ?? .max, UInt32(table.top))
                        while next > 0, !batch.isFull {
                            next -= 1
                            if table.isUsed(next) { batch.append(takeOut(next, shard, &table, .removed)) }
                        }
                        position = next
                        return next == 0
                    }
                }
                settle(batch)
            }
            return true
        }
        putBack(batch)
    }

    /// Takes out every entry with that tag, in slices, so that nobody waits long. A load under way with that tag is not kept, and whoever asks for its key from
    /// now on loads anew.
    ///
    /// - Returns: number of entries taken out.
    /// - Complexity: O(entries with that tag).
    @discardableResult
    public func purge(tag: String) -> Int { invalidating { purgeEach(tag) } }

    private func purgeEach(_ tag: String) -> Int {
        for key in taggedLoads.revoke(tag) { loads.forget(key) }
        let batch = takeBatch()
        var count = 0
        directory.forEach { shard in
            // What listeners and others put in meanwhile is not waited for.
            var end: UInt64?, isOver = false
            while !isOver {
                isOver = shard.lock.pointee.withLock { table in
                    if end == nil { end = table.tags.sequence }
                    return Layout.writing(shard) {
                        while !batch.isFull {
                            guard let slot = table.tags.oldest(tag, before: end ?? 0) else { return true }
                            batch.append(takeOut(UInt32(slot), shard, &table, .purged))
                        }
                        return false
                    }
                }
                count += batch.count
                settle(batch)
            }
            return true
        }
        putBack(batch)
        return count
    }

    /// Number of entries with that tag; such as have expired are counted until somebody looks.
    public func count(tag: String) -> Int { sum { $0.tags.count(tag) } }

    // MARK: Out of a slot

    /// Takes out what is in `slot` of a locked shard.
    func takeOut(_ slot: UInt32, _ shard: CacheShard, _ table: inout CacheTable, _ reason: RemovalReason) -> Entry {
        table.remove(slot)
        return takeUnlisted(slot, shard, &table, reason)
    }

    func takeUnlisted(_ slot: UInt32, _ shard: CacheShard, _ table: inout CacheTable, _ reason: RemovalReason) -> Entry {
        let pair = shard.place(slot, Layout.pairSize).pair
        let entry = Entry(key: Layout.key(pair).move(), value: Layout.value(pair).move(), cost: table.cost(of: slot), reason: reason)
        if reason == .evicted { table.evictions &+= 1 } else if reason == .expired { counters.count(.expiry) }
        return entry
    }

    // MARK: The batch

    /// The prepared batch, or a new one if somebody else is using it.
    func takeBatch() -> Batch {
        let prepared = batch.withLock { batch in
            defer { batch = nil }
            return batch
        }
        return prepared ?? Batch(capacity: Self.slice)
    }

    func putBack(_ batch: Batch) { self.batch.withLock { $0 = batch } }

    func settle(_ batch: Batch) {
        // All of them before any listener is told: one that lowers the limit waits until no more is counted than that.
        var cost = 0
        batch.forEach { entry in
            if entry.reason == .purged { counters.count(.purge) }
            cost += entry.cost
        }
        if cost != 0 { forget(cost) }
        batch.drain { tell($0) }
    }
}

import Synchronization

extension PurgeableCache {
    public var heldBytes: Int { byteCount }

    /// Releases at least `target` bytes, the coldest first, evenly over the shards. Allocates nothing.
    public func release(_ target: Int) -> Int { letGo(target, reason: .purged) }

    package func attach(_ meter: ChargeMeter) -> Bool {
        // A second manager finds the first one's meter: only one manager can bound the growth.
        guard self.meter.load() == nil, self.meter.storeIfNil(meter) === meter else { return false }
        counters.use(.meter)
        meter.takeAnyway(counters.total.pointee.load(ordering: .relaxed))
        return true
    }

    /// Evicts `count` entries, or all that may be evicted, the least valuable first. For callers that bound
    /// something other than cost.
    ///
    /// - Returns: the number of entries evicted.
    @discardableResult
    public func evict(count: Int) -> Int {
        takeColdest(.evicted) { taken, _ in taken < count }.count
    }

    func setLimit(_ new: Int) {
        // If several threads set the limit, listeners included, the last to come decides both numbers.
        let turn = limitChanges.withLock { turn in
            turn += 1
            if new > counters.limit.pointee.load(ordering: .relaxed) {
                counters.limit.pointee.store(new, ordering: .releasing)
            }
            counters.bound.pointee.store(new, ordering: .relaxed)
            return turn
        }
        // After this, no insert that used the old bound is still in progress.
        _ = sum { _ in 0 }
        let pause = Parker()
        // Evict down to the bound in force: another thread may have raised the bound meanwhile.
        while case let total = counters.total.pointee.load(ordering: .relaxed),
            case let excess = total - counters.bound.pointee.load(ordering: .relaxed), excess > 0
        {
            if letGo(excess, reason: .evicted) > 0 { continue }
            // Other threads may have evicted bytes that they have not linked yet. They will link or release them in
            // a moment. Pinned entries stay.
            if sum({ $0.pinned.cost }) >= total { break }
            pause.park(atMost: .microseconds(50))
        }
        limitChanges.withLock { if $0 == turn { counters.limit.pointee.store(new, ordering: .releasing) } }
    }

    func letGo(_ target: Int, reason: RemovalReason) -> Int {
        let bytes = takeColdest(reason) { _, bytes in bytes < target }.bytes
        if bytes > 0 { giveBackPages() }
        return bytes
    }

    /// Takes out the coldest entries while `wantsMore` returns true. `wantsMore` gets the number of entries and the
    /// sum of costs so far. Allocates nothing.
    private func takeColdest(_ reason: RemovalReason, _ wantsMore: (Int, Int) -> Bool) -> (count: Int, bytes: Int) {
        var count = 0, bytes = 0, isEmpty = false
        // Bounded by the initial count, so that entries inserted by listeners meanwhile do not prolong the loop.
        let most = self.count
        let batch = takeBatch()
        // A small slice from each shard in turn keeps the shards even. The last shards lose no more than needed.
        while count < most, wantsMore(count, bytes), !isEmpty {
            isEmpty = true
            directory.forEach(from: counters.nextStart) { shard in
                let changes = changes
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
                finishRemoval(of: batch, after: changes)
                return count < most && wantsMore(count, bytes)
            }
        }
        putBack(batch)
        return (count, bytes)
    }

    /// Compacts shards that have become much emptier, a few entries at a time, and releases the free pages to the
    /// kernel.
    private func giveBackPages() {
        directory.forEach { shard in
            var isBegun = false, isOver = false
            while !isOver {
                isOver = shard.lock.pointee.withLock { table in
                    guard isBegun || table.isSparse else { return true }
                    isBegun = true
                    return Layout.writing(shard) {
                        table.compact(atMost: 64) { from, to in
                            let (from, to) = (
                                shard.place(from, Layout.pairSize).pair, shard.place(to, Layout.pairSize).pair
                            )
                            Layout.move(from, to)
                        }
                    }
                }
            }
            return true
        }
    }

    /// Removes all entries. The values of loads in progress are not kept. No thread waits long: contents are detached as a whole, and a separate thread destroys
    /// them if there are many. With a listener, which is called for each entry, removal runs on the calling thread,
    /// in slices.
    public func removeAll() {
        if hasListeners {
            return invalidating {
                // A load that begins before the invalidation may still find a value in a second-level store.
                loads.revokeAll()
                removeEach()
            }
        }
        loads.revokeAll()
        var remains: [DetachedTables<Key, Value>] = [], count = 0
        let closing = closeAll()
        directory.forEach { shard in
            let (old, cost, entries) = shard.lock.pointee.withLock { table in
                // If the shard was opened again meanwhile, or closed by another thread, the number differs.
                if let closing, shard.openness.pointee.load(ordering: .relaxed) == closing.ticket {
                    if closing.isAnyBorrowed { Layout.retainBorrowed(shard) }
                    shard.openness.pointee.store(0, ordering: .relaxed)
                }
                let (cost, entries) = (table.cost, table.count)
                return (Layout.writing(shard) { table.clear() }, cost, entries)
            }
            remains.append(DetachedTables(old, cost: cost))
            count += entries
            counters.total.pointee.wrappingSubtract(cost, ordering: .relaxed)
            return true
        }
        DetachedTables.end(remains, count: count, meter: meter.load())
    }

    /// Closes all shards at the price of one. While a shard still carries this ticket, no thread reads the shard
    /// without the lock.
    private func closeAll() -> (ticket: UInt, isAnyBorrowed: Bool)? {
        guard !Layout.isTrivial, counters.has(.visitors) else { return nil }
        let ticket = ReaderSlots.ticket()
        var isAnyClosed = false
        directory.forEach { shard in
            shard.lock.pointee.withLock { _ in
                guard shard.openness.pointee.load(ordering: .relaxed) == CacheShard.open else { return }
                shard.openness.pointee.store(ticket, ordering: .relaxed)
                isAnyClosed = true
            }
            return true
        }
        return (ticket, isAnyClosed && ReaderSlots.awaitLeaving { directory.contains($0) })
    }

    private func removeEach() {
        let batch = takeBatch()
        directory.forEach { shard in
            // Backwards: compaction meanwhile moves entries to the front, and a listener's inserts fill slots that
            // have just been emptied.
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
                finishRemoval(of: batch, isInvalid: true)
            }
            return true
        }
        putBack(batch)
    }

    /// Removes every entry with that tag, in slices, so that no thread waits long. The value of a load in progress
    /// with that tag is not kept. Callers that ask for its key from now on start a new load.
    ///
    /// - Returns: the number of entries removed.
    /// - Complexity: O(entries with that tag).
    @discardableResult
    public func purge(tag: String) -> Int { invalidating { purgeEach(tag) } }

    private func purgeEach(_ tag: String) -> Int {
        loads.revokeAll(tag: tag)
        let batch = takeBatch()
        var count = 0
        directory.forEach { shard in
            // Entries that listeners and other threads insert meanwhile do not prolong the loop.
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
                finishRemoval(of: batch, isInvalid: true)
            }
            return true
        }
        putBack(batch)
        return count
    }

    /// Returns the number of entries with that tag. Expired entries count until they are taken out.
    public func count(tag: String) -> Int { sum { $0.tags.count(tag) } }

    // MARK: Emptying a slot

    func takeOut(_ slot: UInt32, _ shard: CacheShard, _ table: inout CacheTable, _ reason: RemovalReason) -> Entry {
        table.remove(slot)
        return takeUnlisted(slot, shard, &table, reason)
    }

    func takeUnlisted(_ slot: UInt32, _ shard: CacheShard, _ table: inout CacheTable, _ reason: RemovalReason) -> Entry
    {
        let pair = shard.place(slot, Layout.pairSize).pair
        let entry = Entry(
            key: Layout.key(pair).move(), value: Layout.value(pair).move(), cost: table.cost(of: slot), reason: reason,
            deadlines: table.deadlines(of: slot))
        if reason == .evicted { table.evictions &+= 1 } else if reason == .expired { counters.count(.expiry) }
        return entry
    }

    // MARK: The batch

    /// Returns the prepared batch, or a new one if another thread is using the prepared batch.
    func takeBatch() -> Batch {
        let prepared = batch.withLock { batch in
            defer { batch = nil }
            return batch
        }
        return prepared ?? Batch(capacity: Self.slice)
    }

    func putBack(_ batch: Batch) { self.batch.withLock { $0 = batch } }

    /// Releases the charges of the entries in `batch`, then calls the listeners.
    ///
    /// - Parameters:
    ///   - changes: the number of changes before the entries left, or less.
    ///   - isInvalid: true if the entries left because their content may no longer be true.
    func finishRemoval(of batch: Batch, after changes: UInt64 = 0, isInvalid: Bool = false) {
        // Release all charges before calling a listener: a listener that lowers the limit waits until no more than
        // the limit is counted.
        var cost = 0
        batch.forEach { entry in
            if entry.reason == .purged { counters.count(.purge) }
            cost += entry.cost
        }
        if cost != 0 { forget(cost) }
        batch.drain { notify($0, after: changes, isInvalid: isInvalid) }
    }
}

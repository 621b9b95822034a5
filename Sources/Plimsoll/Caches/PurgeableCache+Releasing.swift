import Synchronization

extension PurgeableCache {
    public var heldBytes: ByteCount { byteCount }

    /// Lets go of at least `target` bytes, coldest first, evenly over the shards. Allocates nothing.
    public func release(_ target: ByteCount) -> ByteCount { ByteCount(letGo(target.bytes, reason: .purged)) }

    public func attach(_ meter: ChargeMeter) -> Bool {
        // A second manager finds the first one's meter: only one can bound the growth.
        guard self.meter.load() == nil, self.meter.storeIfNil(meter) === meter else { return false }
        counters.use(.meter)
        meter.takeAnyway(counters.total.pointee.load(ordering: .relaxed))
        return true
    }

    func letGo(_ target: Int, reason: RemovalReason) -> Int {
        var released = 0, isEmpty = false
        let batch = takeBatch()
        // A small slice from each in turn keeps the shards even; the last ones are taken no further than needed.
        while released < target, !isEmpty {
            isEmpty = true
            directory.forEach { shard in
                var gained = 0
                shard.lock.pointee.withLock { table in
                    Layout.writing(shard) {
                        while !batch.isFull, gained < target - released, let victim = table.evict() {
                            gained += table.cost(of: victim)
                            batch.append(takeUnlisted(victim, shard, &table, reason))
                        }
                    }
                }
                if batch.count > 0 { isEmpty = false }
                released += gained
                settle(batch)
                return released < target
            }
        }
        putBack(batch)
        return released
    }

    /// Takes out everything, in slices, so that nobody waits long.
    public func removeAll() {
        let batch = takeBatch()
        directory.forEach { shard in
            var position: UInt32 = 0, isOver = false
            while !isOver {
                isOver = shard.lock.pointee.withLock { table in
                    Layout.writing(shard) {
                        while position < UInt32(table.top), !batch.isFull {
                            if table.isUsed(position) { batch.append(takeOut(position, shard, &table, .removed)) }
                            position += 1
                        }
                        return position >= UInt32(table.top)
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
    public func purge(tag: String) -> Int {
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
                counters.count(.otherwise, -batch.count)
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
        table.recycle(slot)
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
        batch.drain { entry in
            if entry.reason == .purged { counters.count(.purge) }
            forget(entry.cost)
            tell(entry)
        }
    }
}

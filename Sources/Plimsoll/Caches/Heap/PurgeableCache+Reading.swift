public import Synchronization

extension PurgeableCache {
    /// Looks up trivial keys and values under a sequence lock. Copies data that a writer may be overwriting, and
    /// uses the copy only if the sequence has not changed.
    ///
    /// Most keys are at the index cell of their hash. Slow paths are tail calls, so this function saves no
    /// registers: a tenth of its time.
    @inlinable @inline(__always)
    func readUnlocked(_ key: Key, _ hash: UInt32) -> Value? {
        let shard = directory.shard(of: hash)
        // Acquires what the last writer wrote.
        let sequence = shard.sequence.pointee.load(ordering: .acquiring)
        let index = CacheIndex(word: shard.indexWord.pointee.load(ordering: .acquiring)),
            cell = index[hash & index.mask]
        guard cell != 0 else { return readMissing(key, hash, shard, sequence) }
        guard index.mayList(hash, in: cell) else { return readFurther(key, hash) }
        let (slot, found, value) = copy(cell & index.mask, shard)
        guard sequence & 1 == 0, isUnchanged(shard, sequence), found == key, !counters.has(.expiry) else {
            return readFurther(key, hash)
        }
        slot.use()
        guard let stripe = ReaderSlot.current?.stripe.pointee.load(ordering: .relaxed), stripe > 0 else {
            return countedElsewhere(value)
        }
        counters.count(.hit, onStripe: stripe)
        return value
    }

    /// Counts a hit of a thread that has no counter stripe of its own. Also a tail call.
    @inlinable @inline(never)
    func countedElsewhere(_ value: Value) -> Value? {
        counters.countElsewhere(.hit)
        return value
    }

    /// Slow path of `readUnlocked`: probes the index for the key. Falls back to the lock if a read may be torn.
    @inlinable @inline(never)
    func readFurther(_ key: Key, _ hash: UInt32) -> Value? {
        let shard = directory.shard(of: hash), sequence = shard.sequence.pointee.load(ordering: .acquiring)
        // Expiry is checked, and expired entries are taken out, under the lock.
        guard sequence & 1 == 0, !counters.has(.expiry) else { return readLocked(key, hash) }
        let index = CacheIndex(word: shard.indexWord.pointee.load(ordering: .acquiring))
        let mask = index.mask, start = hash & mask
        var place = start
        repeat {
            let cell = index[place]
            if cell == 0 { return readMissing(key, hash, shard, sequence) }
            if index.mayList(hash, in: cell) {
                let (slot, found, value) = copy(cell & mask, shard)
                guard isUnchanged(shard, sequence) else { break }
                if found == key {
                    slot.use()
                    counters.count(.hit)
                    return value
                }
            }
            place = (place &+ 1) & mask
        } while place != start
        return readLocked(key, hash)
    }

    /// Reads the slot of an index cell. The key and value may be torn; validate the sequence before using them.
    @inlinable @inline(__always)
    func copy(_ slotPlusOne: UInt32, _ shard: CacheShard) -> (slot: SlotPlace, key: Key, value: Value) {
        let slot = shard.place(of: slotPlusOne, Layout.pairSize), pair = slot.pair
        return (
            slot, AtomicCopy.read(Key.self, from: pair), AtomicCopy.read(Value.self, from: pair + Layout.valueOffset)
        )
    }

    /// Counts a miss: the index does not list the key.
    @inlinable @inline(never)
    func readMissing(_ key: Key, _ hash: UInt32, _ shard: CacheShard, _ sequence: UInt) -> Value? {
        // The entry may have moved to a shard that split off before the sequence was read.
        guard sequence & 1 == 0, isUnchanged(shard, sequence), directory.shard(of: hash).base == shard.base else {
            return readLocked(key, hash)
        }
        counters.count(.miss)
        return nil
    }

    @inlinable @inline(__always)
    func isUnchanged(_ shard: CacheShard, _ sequence: UInt) -> Bool {
        // Pairs with the releasing fence of the writer that made the sequence odd. If this thread has read data
        // written after that fence, the sequence reads as odd or later.
        atomicMemoryFence(ordering: .acquiring)
        return shard.sequence.pointee.load(ordering: .relaxed) == sequence
    }

    /// Looks up non-trivial keys and values, without the lock if the shard is open.
    @inlinable @inline(__always)
    func readOpen(_ key: Key, _ hash: UInt32) -> Value? {
        let shard = directory.shard(of: hash)
        guard let reader = ReaderSlot.current, reader.enter(shard) else { return readLocked(key, hash) }
        guard let slot = find(key, hash, in: shard) else {
            reader.leave()
            // The entry may have moved to a shard that split off before this one opened.
            return readLocked(key, hash)
        }
        let place = shard.place(slot, Layout.pairSize), value = Layout.value(place.pair).pointee
        place.use()
        reader.leave()
        counters.count(.hit, reader)
        return value
    }

    /// Borrows a non-trivial value for as long as the reader slot declares the borrow. Requires an open shard, and
    /// a thread that has no other borrow.
    @inlinable @inline(__always)
    func borrow(_ key: Key, _ hash: UInt32, _ reader: ReaderSlot) -> UnsafeMutablePointer<Value>? {
        let shard = directory.shard(of: hash)
        guard reader.borrowedFrom.pointee.load(ordering: .relaxed) == 0, reader.enter(shard) else { return nil }
        guard let slot = find(key, hash, in: shard) else {
            reader.leave()
            return nil
        }
        let place = shard.place(slot, Layout.pairSize), value = Layout.value(place.pair)
        place.use()
        reader.borrow(value, of: shard)
        counters.count(.hit, reader)
        return value
    }

    /// Returns a copy for callers that cannot borrow.
    @inlinable @inline(never)
    func readCopy(_ key: Key, _ hash: UInt32) -> Value? { readOpen(key, hash) }

    @inlinable @inline(never)
    func readLocked(_ key: Key, _ hash: UInt32) -> Value? {
        if counters.has(.expiry) { return readTimed(key, hash) }
        let opens = !Layout.isTrivial && counters.has(.visitors)
        if opens { ReaderSlots.take() }
        return withShard(of: hash) { shard, table in
            guard let slot = find(key, hash, in: shard) else {
                table.misses &+= 1
                return nil
            }
            table.hits &+= 1
            let place = shard.place(slot, Layout.pairSize)
            place.use()
            if opens { countQuiet(shard) }
            return Layout.value(place.pair).pointee
        }
    }

    /// Opens a locked shard that had no write for long. Closing the shard again costs a few microseconds, less than
    /// that many look-ups have saved.
    @inlinable @inline(__always)
    func countQuiet(_ shard: CacheShard) {
        shard.quietReads.pointee &+= 1
        // With expiry, look-ups take out expired entries, which is a write.
        guard shard.quietReads.pointee == opensAfter, !counters.has(.expiry), ReaderSlots.mayOpen else { return }
        // Released with all writes so far.
        shard.openness.pointee.store(CacheShard.open, ordering: .releasing)
    }

    @inlinable
    func readTimed(_ key: Key, _ hash: UInt32) -> Value? {
        let now = now
        var leaving = Leaving(), cost = 0
        let value: Value? = withShard(of: hash) { shard, table -> Value? in
            guard let slot = find(key, hash, in: shard) else {
                table.misses &+= 1
                return nil
            }
            let place = shard.place(slot, Layout.pairSize)
            guard table.isFresh(slot, at: now, idleTime: lifetime.idleTime) else {
                table.misses &+= 1
                cost = table.cost(of: slot)
                Layout.writing(shard) {
                    table.remove(slot)
                    discard(slot, cost: cost, .expired, shard, &table, &leaving)
                }
                return nil
            }
            table.hits &+= 1
            place.use()
            return Layout.value(place.pair).pointee
        }
        if cost != 0 { forget(cost) }
        if hasListeners { notify(leaving) }
        return value
    }

    /// Returns the slot of `key` in a locked shard.
    @inlinable @inline(__always)
    func find(_ key: borrowing Key, _ hash: UInt32, in shard: CacheShard) -> UInt32? {
        locate(key, hash, in: shard).slot
    }

    /// Returns the slot of `key` in a locked shard. If there is none, `place` is the empty index cell where the
    /// search ended.
    @inlinable @inline(__always)
    func locate(_ key: borrowing Key, _ hash: UInt32, in shard: CacheShard) -> (slot: UInt32?, place: UInt32) {
        let index = CacheIndex(word: shard.indexWord.pointee.load(ordering: .relaxed))
        let mask = index.mask
        var place = hash & mask
        while case let cell = index[place], cell != 0 {
            if index.mayList(hash, in: cell) {
                if Layout.key(shard.place(of: cell & mask, Layout.pairSize).pair).pointee == key {
                    return ((cell & mask) &- 1, place)
                }
            }
            place = (place &+ 1) & mask
        }
        return (nil, place)
    }

    @inlinable @inline(__always)
    func withShard<Result: Sendable>(of hash: UInt32, _ body: (CacheShard, inout CacheTable) -> Result) -> Result {
        while true {
            let shard = directory.shard(of: hash)
            let result: Result? = shard.lock.pointee.withLock { table in
                // The shard may have split while this thread waited.
                guard directory.shard(of: hash).base == shard.base else { return nil }
                return body(shard, &table)
            }
            if let result { return result }
        }
    }

    /// Locks the shard of `hash` for writing and calls `body`.
    @inlinable @inline(__always)
    func withShardToWrite<Result: Sendable>(of hash: UInt32, _ body: (CacheShard, inout CacheTable) -> Result) -> Result
    {
        withShard(of: hash) { shard, table in Layout.writing(shard) { body(shard, &table) } }
    }
}

extension SlotLayout {
    /// Runs `body` as a write that lock-free readers detect by the sequence. Readers that cannot detect a write are
    /// waited for.
    @inlinable @inline(__always)
    static func writing<Result>(_ shard: CacheShard, _ body: () -> Result) -> Result {
        guard isTrivial else {
            if shard.openness.pointee.load(ordering: .relaxed) != 0 { close(shard) }
            shard.quietReads.pointee = 0
            return body()
        }
        let sequence = shard.sequence.pointee.load(ordering: .relaxed)
        shard.sequence.pointee.store(sequence &+ 1, ordering: .relaxed)
        // A reader that sees any write of `body` also sees the odd number.
        atomicMemoryFence(ordering: .releasing)
        defer { shard.sequence.pointee.store(sequence &+ 2, ordering: .releasing) }
        return body()
    }
}

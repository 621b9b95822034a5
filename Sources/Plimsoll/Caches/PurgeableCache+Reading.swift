public import Synchronization

extension PurgeableCache {
    /// Looks up trivial keys and values: copies what may be being overwritten, and makes something of it only if nobody has written meanwhile.
    ///
    /// Most are where their hash says. Whatever else there is to do is not called from here but gone on to, so that this needs no registers saved: a tenth of its
    /// time.
    @inlinable @inline(__always)
    func readUnlocked(_ key: Key, _ hash: UInt32) -> Value? {
        let shard = directory.shard(of: hash)
        // Acquired with what the last writer wrote.
        let sequence = shard.sequence.pointee.load(ordering: .acquiring)
        let index = CacheIndex(word: shard.indexWord.pointee.load(ordering: .acquiring)), cell = index[hash & index.mask]
        guard cell != 0 else { return readMissing(key, hash, shard, sequence) }
        guard index.mayList(hash, in: cell) else { return readFurther(key, hash) }
        let (slot, found, value) = copy(cell & index.mask, shard)
        guard sequence & 1 == 0, isUnchanged(shard, sequence), found == key, !counters.has(.expiry) else { return readFurther(key, hash) }
        slot.use()
        guard let lane = ThreadSeat.current?.lane.pointee.load(ordering: .relaxed), lane > 0 else { return countedElsewhere(value) }
        counters.count(.hit, onLane: lane)
        return value
    }

    /// A hit of a thread that has no lane of its own; gone on to as well.
    @inlinable @inline(never)
    func countedElsewhere(_ value: Value) -> Value? {
        counters.countElsewhere(.hit)
        return value
    }

    /// The same for what is not where its hash says, or there at all. Whatever it can't be sure of it asks for under the lock.
    @inlinable @inline(never)
    func readFurther(_ key: Key, _ hash: UInt32) -> Value? {
        let shard = directory.shard(of: hash), sequence = shard.sequence.pointee.load(ordering: .acquiring)
        // What may have expired is judged, and taken out, under the lock.
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

    /// A slot, by how an index mentions it, and what is in it: only once the sequence is known not to have changed are they a key and a value, and not halves of two.
    @inlinable @inline(__always)
    func copy(_ mention: UInt32, _ shard: CacheShard) -> (slot: SlotPlace, key: Key, value: Value) {
        let slot = shard.place(of: mention, Layout.pairSize), pair = slot.pair
        return (slot, CacheWords.read(Key.self, from: pair), CacheWords.read(Value.self, from: pair + Layout.valueOffset))
    }

    /// The index does not list it.
    @inlinable @inline(never)
    func readMissing(_ key: Key, _ hash: UInt32, _ shard: CacheShard, _ sequence: UInt) -> Value? {
        // It may have been there and have moved to a shard that split off before the sequence was read.
        guard sequence & 1 == 0, isUnchanged(shard, sequence), directory.shard(of: hash).base == shard.base else { return readLocked(key, hash) }
        counters.count(.miss)
        return nil
    }

    @inlinable @inline(__always)
    func isUnchanged(_ shard: CacheShard, _ sequence: UInt) -> Bool {
        // Pairs with the releasing fence of whoever made the sequence odd: had we read anything written after it, we would see it odd or later.
        atomicMemoryFence(ordering: .acquiring)
        return shard.sequence.pointee.load(ordering: .relaxed) == sequence
    }

    /// Looks up what is not trivial: without the lock where the shard is open.
    @inlinable @inline(__always)
    func readOpen(_ key: Key, _ hash: UInt32) -> Value? {
        let shard = directory.shard(of: hash)
        guard let seat = ThreadSeat.current, seat.enter(shard) else { return readLocked(key, hash) }
        guard let slot = find(key, hash, in: shard) else {
            seat.leave()
            // It may have moved to a shard that split off before this one opened.
            return readLocked(key, hash)
        }
        let place = shard.place(slot, Layout.pairSize), value = Layout.value(place.pair).pointee
        place.use()
        seat.leave()
        counters.count(.hit, seat)
        return value
    }

    /// Borrows what is not trivial, as long as the caller's seat says so: out of an open shard, by a thread that borrows nothing else.
    @inlinable @inline(__always)
    func borrow(_ key: Key, _ hash: UInt32, _ seat: ThreadSeat) -> UnsafeMutablePointer<Value>? {
        let shard = directory.shard(of: hash)
        guard seat.lender.pointee.load(ordering: .relaxed) == 0, seat.enter(shard) else { return nil }
        guard let slot = find(key, hash, in: shard) else {
            seat.leave()
            return nil
        }
        let place = shard.place(slot, Layout.pairSize), value = Layout.value(place.pair)
        place.use()
        seat.borrow(value, of: shard)
        counters.count(.hit, seat)
        return value
    }

    /// A copy for who can't borrow.
    @inlinable @inline(never)
    func readCopy(_ key: Key, _ hash: UInt32) -> Value? { readOpen(key, hash) }

    @inlinable @inline(never)
    func readLocked(_ key: Key, _ hash: UInt32) -> Value? {
        if counters.has(.expiry) { return readTimed(key, hash) }
        let opens = !Layout.isTrivial && counters.has(.visitors)
        if opens { ThreadSeats.take() }
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

    /// Opens a locked shard in which nobody has written for long: closing it again costs a few microseconds, less than so many look-ups have saved.
    @inlinable @inline(__always)
    func countQuiet(_ shard: CacheShard) {
        shard.quietReads.pointee &+= 1
        // What may expire is taken out by look-ups.
        guard shard.quietReads.pointee == opensAfter, !counters.has(.expiry), ThreadSeats.mayOpen else { return }
        // Released with all that has been written.
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
        if hasListeners { tell(leaving) }
        return value
    }

    /// The slot of `key` in a locked shard.
    @inlinable @inline(__always)
    func find(_ key: borrowing Key, _ hash: UInt32, in shard: CacheShard) -> UInt32? { look(key, hash, in: shard).slot }

    /// The slot of `key` in a locked shard; if there is none, the index's empty cell where the search ended.
    @inlinable @inline(__always)
    func look(_ key: borrowing Key, _ hash: UInt32, in shard: CacheShard) -> (slot: UInt32?, place: UInt32) {
        let index = CacheIndex(word: shard.indexWord.pointee.load(ordering: .relaxed))
        let mask = index.mask
        var place = hash & mask
        while case let cell = index[place], cell != 0 {
            if index.mayList(hash, in: cell) {
                if Layout.key(shard.place(of: cell & mask, Layout.pairSize).pair).pointee == key { return ((cell & mask) &- 1, place) }
            }
            place = (place &+ 1) & mask
        }
        return (nil, place)
    }

    /// Locks the shard that `hash` belongs to.
    @inlinable @inline(__always)
    func withShard<Result: Sendable>(of hash: UInt32, _ body: (CacheShard, inout CacheTable) -> Result) -> Result {
        while true {
            let shard = directory.shard(of: hash)
            let result: Result? = shard.lock.pointee.withLock { table in
                // It may have split while we waited.
                guard directory.shard(of: hash).base == shard.base else { return nil }
                return body(shard, &table)
            }
            if let result { return result }
        }
    }

    /// The same for who writes.
    @inlinable @inline(__always)
    func withShardToWrite<Result: Sendable>(of hash: UInt32, _ body: (CacheShard, inout CacheTable) -> Result) -> Result {
        withShard(of: hash) { shard, table in Layout.writing(shard) { body(shard, &table) } }
    }
}

extension SlotLayout {
    /// Has readers without the lock notice that `body` writes; those who can't be told are waited for.
    @inlinable @inline(__always)
    static func writing<Result>(_ shard: CacheShard, _ body: () -> Result) -> Result {
        guard isTrivial else {
            if shard.openness.pointee.load(ordering: .relaxed) != 0 { close(shard) }
            shard.quietReads.pointee = 0
            return body()
        }
        let sequence = shard.sequence.pointee.load(ordering: .relaxed)
        shard.sequence.pointee.store(sequence &+ 1, ordering: .relaxed)
        // Whoever sees anything of what follows sees the odd number as well.
        atomicMemoryFence(ordering: .releasing)
        defer { shard.sequence.pointee.store(sequence &+ 2, ordering: .releasing) }
        return body()
    }
}

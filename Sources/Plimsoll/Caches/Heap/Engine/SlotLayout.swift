import CPlimsollMemory
import Synchronization

/// Layout of key and value in a pair.
@usableFromInline
enum SlotLayout<Key, Value> {
    @inlinable @inline(__always)
    static var valueOffset: Int { align(MemoryLayout<Key>.size, MemoryLayout<Value>.alignment) }
    @inlinable @inline(__always)
    static var pairSize: Int {
        align(
            valueOffset &+ MemoryLayout<Value>.size, max(4, MemoryLayout<Key>.alignment, MemoryLayout<Value>.alignment))
    }
    /// True if keys and values are plain bits, which may be copied while they change and need no destruction.
    @inlinable @inline(__always)
    static var isTrivial: Bool { _isPOD(Key.self) && _isPOD(Value.self) }

    @inlinable @inline(__always)
    static func align(_ offset: Int, _ alignment: Int) -> Int { (offset &+ alignment &- 1) & ~(alignment &- 1) }

    @inlinable @inline(__always)
    static func key(_ pair: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Key> {
        pair.assumingMemoryBound(to: Key.self)
    }
    @inlinable @inline(__always)
    static func value(_ pair: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Value> {
        (pair + valueOffset).assumingMemoryBound(to: Value.self)
    }

    /// Writes key and value into an empty pair.
    @inlinable @inline(__always)
    static func fill(_ pair: UnsafeMutableRawPointer, _ key: Key, _ value: Value) {
        if isTrivial {
            withUnsafeBytes(of: key) {
                AtomicCopy.write(
                    $0.count, MemoryLayout<Key>.alignment, from: $0.baseAddress.unsafelyUnwrapped, to: pair)
            }
            withUnsafeBytes(of: value) {
                AtomicCopy.write(
                    $0.count, MemoryLayout<Value>.alignment, from: $0.baseAddress.unsafelyUnwrapped,
                    to: pair + valueOffset)
            }
        } else {
            Self.key(pair).initialize(to: key)
            Self.value(pair).initialize(to: value)
        }
    }

    /// Moves key and value into an empty pair.
    @inline(__always)
    static func move(_ from: UnsafeMutableRawPointer, _ to: UnsafeMutableRawPointer) {
        if isTrivial {
            AtomicCopy.write(
                pairSize, max(4, MemoryLayout<Key>.alignment, MemoryLayout<Value>.alignment), from: from, to: to)
        } else {
            key(to).moveInitialize(from: key(from), count: 1)
            value(to).moveInitialize(from: value(from), count: 1)
        }
    }

    /// Returns an empty shard for such pairs.
    static func shard(depth: UInt32) -> CacheShard {
        let mover: PairMove = { from, to in move(from, to) }
        let isBits = _isBitwiseTakable(Key.self) && _isBitwiseTakable(Value.self)
        return CacheShard(pairSize: pairSize, hasReaders: isTrivial, depth: depth, move: isBits ? nil : mover)
    }

    /// Destroys key and value.
    @inlinable @inline(__always)
    static func destroy(_ pair: UnsafeMutableRawPointer) {
        guard !isTrivial else { return }
        key(pair).deinitialize(count: 1)
        value(pair).deinitialize(count: 1)
    }
}

extension SlotLayout {
    /// True if a value may be borrowed by its bits: they fit into a reader slot and are valid at any address.
    @inlinable @inline(__always)
    static var isLendable: Bool {
        !isTrivial && _isBitwiseTakable(Value.self) && MemoryLayout<Value>.size <= ReaderSlot.roomSize
            && MemoryLayout<Value>.alignment <= 16
    }

    /// Closes `shard`, which must be locked: no thread reads without the lock from now on, until the shard opens
    /// again.
    @usableFromInline @inline(never)
    static func close(_ shard: CacheShard) {
        shard.openness.pointee.store(0, ordering: .relaxed)
        if ReaderSlots.awaitLeaving({ $0 == UInt(bitPattern: shard.base) }) { shareLent(shard) }
    }

    /// Gives each thread that has borrowed out of `shard`, which is closed and locked, a reference of its own.
    static func shareLent(_ shard: CacheShard) {
        ReaderSlots.forEachBorrower(of: shard) { reader in
            // Acquires what came before: if the value belongs to another cache already, `borrowedFrom` has changed as
            // well.
            let borrowed = reader.borrowed.pointee.load(ordering: .acquiring)
            guard reader.borrowedFrom.pointee.load(ordering: .relaxed) == UInt(bitPattern: shard.base) else { return }
            // The thread borrowed before the shard was last closed, and was given a reference then.
            guard reader.given.pointee.load(ordering: .relaxed) != borrowed,
                let value = UnsafeMutablePointer<Value>(bitPattern: borrowed)
            else { return }
            retain(value)
            #if DEBUG
            LendingPoint.retained.pass()
            #endif
            // Another giver's reference may be there, which came too late and is about to be taken back.
            while !reader.given.pointee.compareExchange(expected: 0, desired: borrowed, ordering: .releasing).exchanged
            {
                plimsoll_nap(50_000)
            }
            // Now the borrower sees the reference when its borrow ends, or this thread sees that the borrow has
            // ended.
            #if DEBUG
            LendingPoint.given.pass()
            #endif
            ReaderSlots.barrier()
            guard reader.borrowedFrom.pointee.load(ordering: .acquiring) != UInt(bitPattern: shard.base),
                reader.takeGiven(borrowed)
            else { return }
            release(value)
        }
    }

    /// Adds one reference to the object of `value`.
    private static func retain(_ value: UnsafeMutablePointer<Value>) {
        // A copy that is never destroyed.
        withUnsafeTemporaryAllocation(of: Value.self, capacity: 1) { $0.initializeElement(at: 0, to: value.pointee) }
    }

    /// Drops one reference. It is not the last, as `value` holds one.
    private static func release(_ value: UnsafeMutablePointer<Value>) {
        withUnsafeTemporaryAllocation(of: Value.self, capacity: 1) { copy in
            guard let address = copy.baseAddress else { return }
            UnsafeMutableRawPointer(address).copyMemory(from: value, byteCount: MemoryLayout<Value>.size)
            address.deinitialize(count: 1)
        }
    }
}

/// Deadlines of the entry in a slot, in nanoseconds of running time; `.max` for never.
@usableFromInline
struct SlotTimes: BitwiseCopyable, Sendable {
    /// Deadline in any case.
    var expires: Int64
    /// Deadline unless the entry is used.
    var idles: Int64
    /// Time from which the next caller that asks for the entry reloads the value.
    var refreshes: Int64
    /// Neighbours in the wheel. The highest eight bits of the first hold the position in the wheel.
    var links: (UInt32, UInt32) = (SlotNode.none, SlotNode.none)

    var deadline: Int64 { min(expires, idles) }

    /// The same deadlines for another slot.
    var kept: SlotTimes { SlotTimes(expires: expires, idles: idles, refreshes: refreshes) }

    init(expires: Int64 = .max, idles: Int64 = .max, refreshes: Int64 = .max) {
        (self.expires, self.idles, self.refreshes) = (expires, idles, refreshes)
    }
}

/// Slots ordered by the time of their next check, in a hierarchical timing wheel (Varghese and Lauck, SOSP 1987).
/// Four rings have 64 buckets each, of 0.13 s, 8.6 s, 9 min and 10 h a bucket. Only inserts advance the wheel.
///
/// A slot whose deadline was postponed stays in its bucket and is moved on when found, so a use costs the wheel
/// nothing.
struct ExpiryWheel {
    private static let rings = 4
    /// Nanoseconds of a tick, as a power of two.
    private static let tickBits: Int64 = 27

    private var heads: ContiguousArray<UInt32> = []
    /// For each ring, one bit for each bucket that holds a slot.
    private var filled: ContiguousArray<UInt64> = []
    /// All ticks before this one have been checked.
    private var tick: Int64 = 0

    var isUsed: Bool { !heads.isEmpty }

    /// Time up to which all slots have been checked.
    var now: Int64 { tick << Self.tickBits }

    /// Starts using the wheel, with all buckets empty.
    mutating func use(at now: Int64) {
        guard !isUsed else { return }
        heads = ContiguousArray(repeating: SlotNode.none, count: Self.rings * 64)
        filled = ContiguousArray(repeating: 0, count: Self.rings)
        tick = now >> Self.tickBits
    }

    /// Adds `slot` to the bucket of its deadline. Does nothing else without a deadline.
    mutating func add(_ slot: UInt32, _ times: inout SlotColumn<SlotTimes>) {
        var own = times[slot]
        own.links = (SlotNode.none, SlotNode.none)
        guard own.deadline != .max else { return times.set(slot, own) }
        // The first tick after the deadline.
        let farthest = Int64(1) << (6 * Int64(Self.rings)) - 1
        let due = min(max(tick, (own.deadline >> Self.tickBits) + 1), tick + farthest)
        var ring: Int64 = 0
        while (due - tick) >> (6 * (ring + 1)) != 0 { ring += 1 }
        let bucket = Int(ring) * 64 + Int(due >> (6 * ring) & 63)
        let next = heads[bucket]
        own.links = (SlotNode.none | UInt32(bucket) << 24, next)
        times.set(slot, own)
        if next != SlotNode.none {
            var neighbour = times[next]
            neighbour.links.0 = neighbour.links.0 & 0xFF00_0000 | slot
            times.set(next, neighbour)
        }
        heads[bucket] = slot
        filled[Int(ring)] |= 1 << UInt64(bucket & 63)
    }

    /// Removes `slot` if the wheel contains it.
    mutating func remove(_ slot: UInt32, _ times: inout SlotColumn<SlotTimes>) {
        var own = times[slot]
        let (older, newer, bucket) = (own.links.0 & 0xFF_FFFF, own.links.1, Int(own.links.0 >> 24))
        guard heads[bucket] == slot || older != SlotNode.none else { return }
        if older == SlotNode.none {
            heads[bucket] = newer
        } else {
            var neighbour = times[older]
            neighbour.links.1 = newer
            times.set(older, neighbour)
        }
        if newer != SlotNode.none {
            var neighbour = times[newer]
            neighbour.links.0 = neighbour.links.0 & 0xFF00_0000 | older
            times.set(newer, neighbour)
        }
        if heads[bucket] == SlotNode.none { filled[bucket >> 6] &= ~(1 << UInt64(bucket & 63)) }
        own.links = (SlotNode.none, SlotNode.none)
        times.set(slot, own)
    }

    /// Returns a slot whose deadline has passed, still in the wheel. Returns `nil` if there is none, or if too many
    /// others had to be moved on for now. Empty buckets cost nothing, even if much time has passed since the last
    /// check.
    mutating func due(at now: Int64, _ times: inout SlotColumn<SlotTimes>) -> UInt32? {
        guard isUsed else { return nil }
        let last = now >> Self.tickBits
        for _ in 0..<64 {
            guard let bucket = occupied() else {
                guard tick < last else { return nil }
                skip(to: last)
                continue
            }
            let slot = heads[bucket]
            if times[slot].deadline <= now { return slot }
            remove(slot, &times)
            add(slot, &times)
        }
        return nil
    }

    /// Returns the bucket to empty at this tick. Outer rings come first, as they fill the inner rings.
    private func occupied() -> Int? {
        for ring in (0..<Int64(Self.rings)).reversed() where tick & (1 << (6 * ring) - 1) == 0 {
            let place = tick >> (6 * ring) & 63
            if filled[Int(ring)] & 1 << UInt64(place) != 0 { return Int(ring) * 64 + Int(place) }
        }
        return nil
    }

    /// Advances to the next tick at which a bucket must be emptied, at most to `last`.
    private mutating func skip(to last: Int64) {
        var next = last
        for ring in 0..<Int64(Self.rings) where filled[Int(ring)] != 0 {
            let turn = tick >> (6 * ring), bits = filled[Int(ring)], start = UInt64(turn + 1) & 63
            // The lowest bit is the bucket after this turn's; the highest is this turn's own, which comes a whole
            // round later.
            let ahead = bits >> start | bits << (64 - start & 63)
            next = min(next, (turn + 1 + Int64(ahead.trailingZeroBitCount)) << (6 * ring))
        }
        tick = next
    }
}

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
        if ReaderSlots.awaitLeaving({ $0 == UInt(bitPattern: shard.base) }) { retainBorrowed(shard) }
    }

    /// Gives each thread that has borrowed out of `shard`, which is closed and locked, a reference of its own.
    static func retainBorrowed(_ shard: CacheShard) {
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

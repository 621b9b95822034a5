public import CPlimsollMemory
public import Synchronization

/// Hazard pointers: a thread may go on using a value after leaving the shard that keeps the value, without a
/// reference of its own (M. Michael, TPDS 2004). The thread declares the borrow in its reader slot. A writer that
/// closes the shard gives the thread a reference, so that neither waits for the other.
///
/// The reader slot holds the bits of the borrowed value meanwhile. A forked child finds zeros there: see
/// `PurgeableCache.withValue`.
extension ThreadSeat {
    /// The shard out of which the thread has borrowed; 0 for none.
    @inlinable @inline(__always)
    var lender: UnsafeMutablePointer<Atomic<UInt>> { CacheWords.atomic(UInt.self, base + 16) }
    /// Address of the borrowed value in the shard.
    @inlinable @inline(__always)
    var lent: UnsafeMutablePointer<Atomic<UInt>> { CacheWords.atomic(UInt.self, base + 24) }
    /// Address of a value to which the thread has been given a reference; 0 for none.
    @inlinable @inline(__always)
    var given: UnsafeMutablePointer<Atomic<UInt>> { CacheWords.atomic(UInt.self, base + 32) }

    @inlinable @inline(__always)
    static var roomSize: Int { 80 }
    /// The bits of the borrowed value.
    @inlinable @inline(__always)
    func room<Value>(_ type: Value.Type) -> UnsafeMutablePointer<Value> { (base + 48).assumingMemoryBound(to: type) }

    /// Borrows `value`, kept by `shard`, which the thread is reading, and leaves the shard.
    @inlinable @inline(__always)
    func borrow<Value>(_ value: UnsafeMutablePointer<Value>, of shard: CacheShard) {
        UnsafeMutableRawPointer(room(Value.self)).copyMemory(from: value, byteCount: MemoryLayout<Value>.size)
        // Released: a thread that sees this address also sees that the previous borrow has ended.
        lent.pointee.store(UInt(bitPattern: value), ordering: .releasing)
        // Released with the value's address. A writer that waits for this thread to leave sees the store, because
        // leaving comes later.
        lender.pointee.store(UInt(bitPattern: shard.base), ordering: .releasing)
        leave()
    }

    /// Ends borrowing `value`.
    @inlinable @inline(__always)
    func giveBack<Value>(_ value: UnsafeMutablePointer<Value>) {
        // No action of the borrower on the value, such as retaining it, may move below this point.
        plimsoll_compiler_barrier()
        lender.pointee.store(0, ordering: .releasing)
        plimsoll_compiler_barrier()
        #if DEBUG
        LendingPoint.ended.pass()
        #endif
        // If this load misses a given reference, the giver sees after its barrier that the gift came too late.
        if given.pointee.load(ordering: .relaxed) == UInt(bitPattern: value) { dropGiven(value) }
    }

    @usableFromInline @inline(never)
    func dropGiven<Value>(_ value: UnsafeMutablePointer<Value>) {
        #if DEBUG
        LendingPoint.seen.pass()
        #endif
        // Take the reference first. A giver that came too late may have taken back the reference, and the bits may
        // be of a dead value.
        guard takeGiven(UInt(bitPattern: value)) else { return }
        // Move the value out of the reader slot before destroying it: the value's destruction may itself borrow.
        let own = room(Value.self).move()
        withExtendedLifetime(own) {}
    }

    /// Clears the borrow of a thread that ends inside a borrow, so that no giver waits for that reader slot. A
    /// reference given to the thread then leaks, like all else that the thread held.
    func endBorrowing() {
        // Without a borrow, a given reference came too late, and its giver is about to take it back.
        guard lender.pointee.load(ordering: .relaxed) != 0 else { return }
        lender.pointee.store(0, ordering: .releasing)
        plimsoll_compiler_barrier()
        // A later giver sees, after its barrier, that the gift came too late, and takes the reference back.
        given.pointee.store(0, ordering: .relaxed)
    }

    /// Takes the given reference. Returns true if the reference was still there.
    func takeGiven(_ value: UInt) -> Bool {
        given.pointee.compareExchange(expected: value, desired: 0, ordering: .acquiring).exchanged
    }
}

public import CPlimsollMemory
public import Synchronization

/// A thread may go on using a value after it has left the shard that keeps it, without a reference of its own: it says so in its seat, as with hazard pointers
/// (M. Michael, TPDS 2004). Whoever closes the shard to write to it gives the thread a reference, so that neither waits for the other.
///
/// What is borrowed lies in the seat meanwhile, bit by bit. A child forked then finds zeros there: see `PurgeableCache.withValue`.
extension ThreadSeat {
    /// The shard out of which its thread has borrowed; 0 for none.
    @inlinable @inline(__always)
    var lender: UnsafeMutablePointer<Atomic<UInt>> { CacheWords.atomic(UInt.self, base + 16) }
    /// The value's address there.
    @inlinable @inline(__always)
    var lent: UnsafeMutablePointer<Atomic<UInt>> { CacheWords.atomic(UInt.self, base + 24) }
    /// Address of a value to which its thread has been given a reference; 0 for none.
    @inlinable @inline(__always)
    var given: UnsafeMutablePointer<Atomic<UInt>> { CacheWords.atomic(UInt.self, base + 32) }

    @inlinable @inline(__always)
    static var roomSize: Int { 80 }
    /// The borrowed value.
    @inlinable @inline(__always)
    func room<Value>(_ type: Value.Type) -> UnsafeMutablePointer<Value> { (base + 48).assumingMemoryBound(to: type) }

    /// Borrows `value`, kept by `shard`, which its thread is reading, and leaves.
    @inlinable @inline(__always)
    func borrow<Value>(_ value: UnsafeMutablePointer<Value>, of shard: CacheShard) {
        UnsafeMutableRawPointer(room(Value.self)).copyMemory(from: value, byteCount: MemoryLayout<Value>.size)
        // Released: who sees it sees that what was borrowed before has been given back.
        lent.pointee.store(UInt(bitPattern: value), ordering: .releasing)
        // Released with which one. Who waits for us to leave sees it, as leaving comes after it.
        lender.pointee.store(UInt(bitPattern: shard.base), ordering: .releasing)
        leave()
    }

    /// Ends borrowing `value`.
    @inlinable @inline(__always)
    func giveBack<Value>(_ value: UnsafeMutablePointer<Value>) {
        // Nothing that the borrower did with it, a reference counted among it, comes later.
        plimsoll_compiler_barrier()
        lender.pointee.store(0, ordering: .releasing)
        plimsoll_compiler_barrier()
        #if DEBUG
        LendingPoint.ended.pass()
        #endif
        // A giver whose gift this misses sees, after its barrier, that it has come too late.
        if given.pointee.load(ordering: .relaxed) == UInt(bitPattern: value) { dropGiven(value) }
    }

    @usableFromInline @inline(never)
    func dropGiven<Value>(_ value: UnsafeMutablePointer<Value>) {
        #if DEBUG
        LendingPoint.seen.pass()
        #endif
        // Taken first: a giver that has come too late may have taken it back, and what lies in the room be dead.
        guard takeGiven(UInt(bitPattern: value)) else { return }
        // Out of the room before it ends: what ends now may borrow itself.
        let own = room(Value.self).move()
        withExtendedLifetime(own) {}
    }

    /// Has a thread that ends inside a borrow leave nothing in its seat that a giver would wait for. What it has been given then never ends, as nothing does
    /// that the thread held.
    func endBorrowing() {
        // Else what is given comes too late already, and its giver is about to take it back.
        guard lender.pointee.load(ordering: .relaxed) != 0 else { return }
        lender.pointee.store(0, ordering: .releasing)
        plimsoll_compiler_barrier()
        // Whoever gives later sees, after its barrier, that it has come too late, and takes it back itself.
        given.pointee.store(0, ordering: .relaxed)
    }

    /// Whether it was still there.
    func takeGiven(_ value: UInt) -> Bool { given.pointee.compareExchange(expected: value, desired: 0, ordering: .acquiring).exchanged }
}

public import CPlimsollMemory
public import Synchronization

/// A thread may go on using a value after it has left the shard that keeps it, without a reference of its own: it says so in its seat, as with hazard pointers
/// (M. Michael, TPDS 2004). Whoever closes the shard to write to it gives the thread a reference, so that neither waits for the other.
///
/// What is borrowed lies in the seat meanwhile, bit by bit. A child forked then would find zeros there.
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
        // A giver whose gift this misses sees, after its barrier, that it has come too late.
        if given.pointee.load(ordering: .relaxed) == UInt(bitPattern: value) { dropGiven(value) }
    }

    @usableFromInline @inline(never)
    func dropGiven<Value>(_ value: UnsafeMutablePointer<Value>) {
        // Out of the room first: what ends now may borrow itself.
        let own = room(Value.self).move()
        if takeGiven(UInt(bitPattern: value)) { return }
        // Somebody has taken it back.
        withUnsafeTemporaryAllocation(of: Value.self, capacity: 1) { $0.initializeElement(at: 0, to: own) }
    }

    /// Whether it was still there.
    func takeGiven(_ value: UInt) -> Bool { given.pointee.compareExchange(expected: value, desired: 0, ordering: .acquiring).exchanged }
}

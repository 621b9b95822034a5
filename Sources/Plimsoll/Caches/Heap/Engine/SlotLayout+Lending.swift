import CPlimsollMemory
import Synchronization

extension SlotLayout {
    /// True if a value may be borrowed by its bits: they fit into a reader slot and are valid at any address.
    @inlinable @inline(__always)
    static var isLendable: Bool {
        !isTrivial && _isBitwiseTakable(Value.self) && MemoryLayout<Value>.size <= ThreadSeat.roomSize
            && MemoryLayout<Value>.alignment <= 16
    }

    /// Closes `shard`, which must be locked: no thread reads without the lock from now on, until the shard opens
    /// again.
    @usableFromInline @inline(never)
    static func close(_ shard: CacheShard) {
        shard.openness.pointee.store(0, ordering: .relaxed)
        if ThreadSeats.awaitLeaving({ $0 == UInt(bitPattern: shard.base) }) { shareLent(shard) }
    }

    /// Gives each thread that has borrowed out of `shard`, which is closed and locked, a reference of its own.
    static func shareLent(_ shard: CacheShard) {
        ThreadSeats.forEachBorrower(of: shard) { seat in
            // Acquires what came before: if the value belongs to another cache already, the lender has changed as
            // well.
            let lent = seat.lent.pointee.load(ordering: .acquiring)
            guard seat.lender.pointee.load(ordering: .relaxed) == UInt(bitPattern: shard.base) else { return }
            // The thread borrowed before the shard was last closed, and was given a reference then.
            guard seat.given.pointee.load(ordering: .relaxed) != lent,
                let value = UnsafeMutablePointer<Value>(bitPattern: lent)
            else { return }
            retain(value)
            #if DEBUG
            LendingPoint.retained.pass()
            #endif
            // Another giver's reference may be there, which came too late and is about to be taken back.
            while !seat.given.pointee.compareExchange(expected: 0, desired: lent, ordering: .releasing).exchanged {
                plimsoll_nap(50_000)
            }
            // Now the borrower sees the reference when its borrow ends, or this thread sees that the borrow has
            // ended.
            #if DEBUG
            LendingPoint.given.pass()
            #endif
            ThreadSeats.barrier()
            guard seat.lender.pointee.load(ordering: .acquiring) != UInt(bitPattern: shard.base), seat.takeGiven(lent)
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

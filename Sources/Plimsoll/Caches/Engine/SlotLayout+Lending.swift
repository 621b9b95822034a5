import CPlimsollMemory
import Synchronization

extension SlotLayout {
    /// Whether a value may be lent as its bits are: there is room for them in a seat, and they stay what they are wherever they lie.
    @inlinable @inline(__always)
    static var isLendable: Bool {
        !isTrivial && _isBitwiseTakable(Value.self) && MemoryLayout<Value>.size <= ThreadSeat.roomSize && MemoryLayout<Value>.alignment <= 16
    }

    /// Has nobody read `shard`, which is locked, without the lock from now on, until it opens again.
    @usableFromInline @inline(never)
    static func close(_ shard: CacheShard) {
        shard.openness.pointee.store(0, ordering: .relaxed)
        if ThreadSeats.awaitLeaving({ $0 == UInt(bitPattern: shard.base) }) { shareLent(shard) }
    }

    /// Gives each thread that has borrowed out of `shard`, which is closed and locked, a reference of its own.
    static func shareLent(_ shard: CacheShard) {
        ThreadSeats.forEachBorrower(of: shard) { seat in
            // Acquired with what came before: if it is of another cache already, the lender is no longer this one either.
            let lent = seat.lent.pointee.load(ordering: .acquiring)
            guard seat.lender.pointee.load(ordering: .relaxed) == UInt(bitPattern: shard.base) else { return }
            // It borrowed before the shard was last closed, and has been given one then.
            guard seat.given.pointee.load(ordering: .relaxed) != lent, let value = UnsafeMutablePointer<Value>(bitPattern: lent) else { return }
            retain(value)
            #if DEBUG
            LendingPoint.retained.pass()
            #endif
            // Somebody else's may be there, who has come too late and is about to take it back.
            while !seat.given.pointee.compareExchange(expected: 0, desired: lent, ordering: .releasing).exchanged { plimsoll_nap(50_000) }
            // Then its thread sees it when it ends borrowing, or we see that it has ended.
            #if DEBUG
            LendingPoint.given.pass()
            #endif
            ThreadSeats.barrier()
            guard seat.lender.pointee.load(ordering: .acquiring) != UInt(bitPattern: shard.base), seat.takeGiven(lent) else { return }
            release(value)
        }
    }

    /// Counts one reference more to what `value` leads to.
    private static func retain(_ value: UnsafeMutablePointer<Value>) {
        // A copy that nobody ends.
        withUnsafeTemporaryAllocation(of: Value.self, capacity: 1) { $0.initializeElement(at: 0, to: value.pointee) }
    }

    /// Counts one reference less; it is not the last, as `value` is one.
    private static func release(_ value: UnsafeMutablePointer<Value>) {
        withUnsafeTemporaryAllocation(of: Value.self, capacity: 1) { copy in
            guard let address = copy.baseAddress else { return }
            UnsafeMutableRawPointer(address).copyMemory(from: value, byteCount: MemoryLayout<Value>.size)
            address.deinitialize(count: 1)
        }
    }
}

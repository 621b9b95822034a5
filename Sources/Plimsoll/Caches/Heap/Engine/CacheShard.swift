public import Synchronization

/// One part of a cache: a block of memory on its own cache lines, with the readers' data in front, then the lock
/// and the table.
///
/// A hit on trivial values takes no lock. The reader reads the sequence, the index, key and value, and the sequence
/// again (a sequence lock). That memory lives as long as the cache, so a late reader can follow any pointer.
/// Writers hold the lock, make the sequence odd, write, and make the sequence even.
/// A hit on other values takes no lock in an open shard, to which no thread has written for a while. A writer
/// closes the shard first, see `ThreadSeat`.
@usableFromInline
struct CacheShard {
    @usableFromInline let base: UnsafeMutableRawPointer

    @inlinable @inline(__always)
    init(base: UnsafeMutableRawPointer) { self.base = base }

    /// Allocates a shard, the first one or one that splits off, whose pairs have `pairSize` bytes.
    ///
    /// - Parameters:
    ///   - hasReaders: true if threads read without the lock and without declaring that.
    ///   - move: a closure that moves key and value; `nil` if a bitwise copy is enough.
    init(pairSize: Int, hasReaders: Bool, depth: UInt32, move: PairMove?) {
        let size = Self.front + MemoryLayout<Mutex<CacheTable>>.size
        base = .allocate(byteCount: (size + 127) & ~127, alignment: 128)
        sequence.initialize(to: Atomic(0))
        quietReads.initialize(to: 0)
        lock.initialize(
            to: Mutex(
                CacheTable(
                    pairSize: pairSize, hasReaders: hasReaders, depth: depth, move: move,
                    columns: columns, index: indexWord)))
    }

    /// Frees the shard. The slots must be empty, and no other thread may know the shard.
    func free() {
        lock.pointee.withLock { $0.end() }
        lock.deinitialize(count: 1)
        base.deallocate()
    }

    @inlinable @inline(__always)
    var sequence: UnsafeMutablePointer<Atomic<UInt>> { CacheWords.atomic(UInt.self, base) }
    /// State of a shard with non-trivial values, in place of the sequence, written under the lock. `open` means
    /// that values may be read without the lock; 0 means that no thread does so. Any other number is the ticket of
    /// the thread that has closed the shard and waits for the remaining readers.
    @inlinable @inline(__always)
    var openness: UnsafeMutablePointer<Atomic<UInt>> { sequence }
    @inlinable @inline(__always)
    static var open: UInt { 1 }
    /// Number of look-ups under the lock since the last write.
    @inlinable @inline(__always)
    var quietReads: UnsafeMutablePointer<Int> { (base + (Self.front &- 8)).assumingMemoryBound(to: Int.self) }
    @inlinable @inline(__always)
    var indexWord: UnsafeMutablePointer<Atomic<UInt>> { CacheWords.atomic(UInt.self, base + 8) }
    @inlinable @inline(__always)
    var lock: UnsafeMutablePointer<Mutex<CacheTable>> {
        (base + Self.front).assumingMemoryBound(to: Mutex<CacheTable>.self)
    }

    @inlinable @inline(__always)
    var columns: UnsafeMutablePointer<SlotColumns> { (base + 16).assumingMemoryBound(to: SlotColumns.self) }
    /// Bytes in front of the lock: the readers' data, in one cache line.
    @inlinable @inline(__always)
    static var front: Int { 64 }

    /// Returns the location of `slot`.
    @inlinable @inline(__always)
    func place(_ slot: UInt32, _ pairSize: Int) -> SlotPlace { SlotPlace(slot &+ 1, columns, pairSize) }
    /// Returns the location of the slot that an index cell names as `mention`, the slot number plus one.
    @inlinable @inline(__always)
    func place(of mention: UInt32, _ pairSize: Int) -> SlotPlace { SlotPlace(mention, columns, pairSize) }
}

public import Synchronization

/// One part of a cache: a block of memory on cache lines of its own, with what readers need in front and the lock and the table behind.
///
/// A hit on trivial values takes no lock: it reads the sequence, the index, key and value, and the sequence again (a seqlock). That memory never goes away before
/// the cache does, so whatever a late reader follows is readable. Writers, who hold the lock, make the sequence odd, write, and make it even.
/// A hit on other values takes none where nobody has written for a while: the shard is open then, and who writes closes it first, see `ThreadSeat`.
@usableFromInline
struct CacheShard {
    @usableFromInline let base: UnsafeMutableRawPointer

    @inlinable @inline(__always)
    init(base: UnsafeMutableRawPointer) { self.base = base }

    /// The first part of a cache whose pairs are `pairSize` bytes.
    ///
    /// - Parameters:
    ///   - hasReaders: whether anybody reads without the lock and without saying so.
    ///   - move: moves key and value; `nil` if they are but bits.
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

    /// Frees it; the slots are empty, and nobody else knows it any more.
    func free() {
        lock.pointee.withLock { $0.end() }
        lock.deinitialize(count: 1)
        base.deallocate()
    }

    @inlinable @inline(__always)
    var sequence: UnsafeMutablePointer<Atomic<UInt>> { CacheWords.atomic(UInt.self, base) }
    /// Of values that are not trivial, in the sequence's place, written under the lock: `open` if they may be read without it, 0 if nobody does. Any other number is
    /// the ticket of who has closed it and waits for those who still do.
    @inlinable @inline(__always)
    var openness: UnsafeMutablePointer<Atomic<UInt>> { sequence }
    @inlinable @inline(__always)
    static var open: UInt { 1 }
    /// Look-ups under the lock since somebody wrote.
    @inlinable @inline(__always)
    var quietReads: UnsafeMutablePointer<Int> { (base + (Self.front &- 8)).assumingMemoryBound(to: Int.self) }
    @inlinable @inline(__always)
    var indexWord: UnsafeMutablePointer<Atomic<UInt>> { CacheWords.atomic(UInt.self, base + 8) }
    @inlinable @inline(__always)
    var lock: UnsafeMutablePointer<Mutex<CacheTable>> { (base + Self.front).assumingMemoryBound(to: Mutex<CacheTable>.self) }

    @inlinable @inline(__always)
    var columns: UnsafeMutablePointer<SlotColumns> { (base + 16).assumingMemoryBound(to: SlotColumns.self) }
    /// Bytes in front of the lock: what readers need, in one line.
    @inlinable @inline(__always)
    static var front: Int { 64 }

    /// Where the parts of `slot` are.
    @inlinable @inline(__always)
    func place(_ slot: UInt32, _ pairSize: Int) -> SlotPlace { SlotPlace(slot &+ 1, columns, pairSize) }
    /// Where the parts of a slot are that an index mentions as `mention`: by one more.
    @inlinable @inline(__always)
    func place(of mention: UInt32, _ pairSize: Int) -> SlotPlace { SlotPlace(mention, columns, pairSize) }
}

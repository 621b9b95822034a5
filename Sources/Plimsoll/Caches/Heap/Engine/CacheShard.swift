import CPlimsollMemory
public import Synchronization

/// One part of a cache: a block of memory on its own cache lines, with the readers' data in front, then the lock
/// and the table.
///
/// A hit on trivial values takes no lock. The reader reads the sequence, the index, key and value, and the sequence
/// again (a sequence lock). That memory lives as long as the cache, so a late reader can follow any pointer.
/// Writers hold the lock, make the sequence odd, write, and make the sequence even.
/// A hit on other values takes no lock in an open shard, to which no thread has written for a while. A writer
/// closes the shard first, see `ReaderSlot`.
///
/// ```
///             one block, aligned to 128 bytes
/// byte 0      8        16                          56           64
///      +------+--------+---------------------------+------------+--------------------+
///      | seq. | index  | columns: addresses of     | quiet      | lock + CacheTable  |
///      | lock | word   | pairs, marks, nodes       | reads      | (writers)          |
///      +------+---|----+------|--------------------+------------+--------------------+
///                 v           v
///         cells, 32 bits:   SlotBlock: key and value of slot 1, 2, 3, ...
///         slot plus one
/// ```
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
    var sequence: UnsafeMutablePointer<Atomic<UInt>> { AtomicCopy.atomic(UInt.self, base) }
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
    var indexWord: UnsafeMutablePointer<Atomic<UInt>> { AtomicCopy.atomic(UInt.self, base + 8) }
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
    /// Returns the location of the slot that an index cell names as `slotPlusOne`, the slot number plus one.
    @inlinable @inline(__always)
    func place(of slotPlusOne: UInt32, _ pairSize: Int) -> SlotPlace { SlotPlace(slotPlusOne, columns, pairSize) }
}

/// Maps a hash to its shard: extendible hashing (Fagin et al., TODS 1979) with all directory places allocated from
/// the beginning.
///
/// A cache starts as one shard and splits shards that have grown. A small cache is thus compact and judges well
/// which entries are cold. A large cache has a lock for each of many threads. After locking a shard, check again
/// that the shard still owns the hash.
@usableFromInline
// Unchecked: a pointer to atomics, which live as long as the cache.
struct CacheDirectory: @unchecked Sendable {
    @usableFromInline let places: UnsafeMutablePointer<Atomic<UInt>>
    @usableFromInline let depth: UInt32

    /// Creates a directory whose places all lead to `first`.
    ///
    /// - Parameter depth: the binary logarithm of the maximum number of shards.
    init(depth: UInt32, first: CacheShard) {
        self.depth = depth
        places = .allocate(capacity: 1 << depth)
        for place in 0..<1 << Int(depth) { (places + place).initialize(to: Atomic(UInt(bitPattern: first.base))) }
    }

    func free() { places.deallocate() }

    @inlinable @inline(__always)
    func shard(of hash: UInt32) -> CacheShard { shard(at: Int(UInt64(hash) &>> UInt64(32 &- depth))) }

    @inlinable @inline(__always)
    func shard(at place: Int) -> CacheShard {
        // Acquires all contents that a new shard was filled with.
        CacheShard(
            base: UnsafeMutableRawPointer(bitPattern: places[place].load(ordering: .acquiring)).unsafelyUnwrapped)
    }

    @inlinable
    var count: Int { 1 << Int(depth) }

    /// Returns the places that lead to the shard of `depth` that owns `hash`.
    func range(of hash: UInt32, depth: UInt32) -> Range<Int> {
        let length = 1 << Int(self.depth - depth)
        let first = Int(UInt64(hash) >> UInt64(32 - self.depth)) & ~(length - 1)
        return first..<first + length
    }

    func set(_ range: Range<Int>, _ shard: CacheShard) {
        for place in range { places[place].store(UInt(bitPattern: shard.base), ordering: .releasing) }
    }

    /// Returns true if a shard has that address.
    func contains(_ address: UInt) -> Bool { (0..<count).contains { places[$0].load(ordering: .relaxed) == address } }

    /// Calls `body` with each shard, from place `start` on and around, until `body` returns false. A shard that
    /// splits meanwhile may appear as two.
    func forEach(from start: Int = 0, _ body: (CacheShard) -> Bool) {
        var last: UnsafeMutableRawPointer?
        for place in 0..<count {
            let shard = shard(at: (start + place) & (count - 1))
            if shard.base == last { continue }
            last = shard.base
            if !body(shard) { return }
        }
    }
}

/// Counters of all threads of a cache, each on a cache line that suits its writers: the total alone, and uses on
/// per-thread stripes. A shared counter would cost more than the look-up. A locked instruction would keep the next
/// look-up's reads from starting before this one's have ended.
@usableFromInline
// Unchecked: a pointer to atomics, which live as long as the cache.
struct CacheCounters: @unchecked Sendable {
    @usableFromInline let base: UnsafeMutableRawPointer

    /// Number of stripes for threads that have none of their own.
    private static var sharedStripes: Int { 4 }

    /// Returns the offset of a stripe. The cache lines of the total and the bound come first.
    static func stripe(_ number: Int) -> Int { 64 * (number + 2) }

    init() {
        let byteCount = Self.stripe(ReaderSlots.stripes + Self.sharedStripes)
        base = .allocate(byteCount: byteCount, alignment: 64)
        base.initializeMemory(as: UInt8.self, repeating: 0, count: byteCount)
    }

    func free() { base.deallocate() }

    /// Sum of the costs of entries and reservations.
    @inlinable @inline(__always)
    var total: UnsafeMutablePointer<Atomic<Int>> { AtomicCopy.atomic(Int.self, base) }

    /// Reported bound of `total`: lowered only after `total` has been brought down, so never less than what holds
    /// meanwhile.
    var limit: UnsafeMutablePointer<Atomic<Int>> { AtomicCopy.atomic(Int.self, base + 88) }

    /// Bound of `total` in force. A thread that changes one of the two and then reads the other is ordered with a
    /// thread that does the reverse.
    @inlinable @inline(__always)
    var bound: UnsafeMutablePointer<Atomic<Int>> { AtomicCopy.atomic(Int.self, base + 64) }

    /// Requests whose hashes have a position below this are sampled; zero if the cache learns no curve.
    @inlinable @inline(__always)
    var sampled: UnsafeMutablePointer<Atomic<UInt32>> { AtomicCopy.atomic(UInt32.self, base + 96) }

    /// Share of the memory for caches; zero for none.
    @inlinable @inline(__always)
    var share: UnsafeMutablePointer<Atomic<Int>> { AtomicCopy.atomic(Int.self, base + 104) }

    /// A different start each time, so that small evictions do not always hit the same shard.
    var nextStart: Int {
        AtomicCopy.atomic(Int.self, base + 80).pointee.wrappingAdd(0x9E37_79B1, ordering: .relaxed).oldValue >> 8
    }

    /// Optional features, a byte each. A cache without a feature pays one check of that byte.
    @frozen @usableFromInline
    enum Feature: Int {
        /// Some entry may expire.
        case expiry
        /// A removal listener is registered.
        case listeners
        /// The cache declares its charges to a meter.
        case meter
        /// Some entry has been pinned.
        case pins
        /// Threads may read a shard without its lock while no thread writes.
        case visitors
        /// Some load has begun.
        case loads
    }

    @inlinable @inline(__always)
    func has(_ feature: Feature) -> Bool {
        AtomicCopy.atomic(UInt8.self, base + (72 &+ feature.rawValue)).pointee.load(ordering: .acquiring) != 0
    }
    /// Marks a feature as used. Released with the feature's state.
    func use(_ feature: Feature) {
        AtomicCopy.atomic(UInt8.self, base + (72 + feature.rawValue)).pointee.store(1, ordering: .releasing)
    }

    @usableFromInline enum Use: Int { case hit, miss, purge, expiry, replacement, rejection }

    @inlinable @inline(__always)
    func count(_ use: Use) { count(use, ReaderSlot.current) }

    /// Counts a use.
    ///
    /// - Parameter reader: the reader slot of the calling thread.
    @inlinable @inline(__always)
    func count(_ use: Use, _ reader: ReaderSlot?) {
        guard let stripe = reader?.stripe.pointee.load(ordering: .relaxed), stripe > 0 else {
            return countElsewhere(use)
        }
        count(use, onStripe: stripe)
    }

    /// Counts a use on a stripe.
    ///
    /// - Parameter stripe: the calling thread's own stripe.
    @inlinable @inline(__always)
    func count(_ use: Use, onStripe stripe: Int) {
        // Only the owning thread writes to a stripe, so a load and a store lose nothing. The next owner of the
        // reader slot continues with its stripe.
        let number = number(use, stripe)
        number.pointee.store(number.pointee.load(ordering: .relaxed) &+ 1, ordering: .relaxed)
    }

    @usableFromInline @inline(never)
    func countElsewhere(_ use: Use) {
        ReaderSlots.take()
        let shared = Int(truncatingIfNeeded: (UInt64(plimsoll_thread_number()) >> 12 &* 0x9E37_79B9_7F4A_7C15) >> 62)
        number(use, Self.stripe(ReaderSlots.stripes + shared)).pointee.wrappingAdd(1, ordering: .relaxed)
    }

    @inlinable @inline(__always)
    func number(_ use: Use, _ stripe: Int) -> UnsafeMutablePointer<Atomic<Int>> {
        AtomicCopy.atomic(Int.self, base + (stripe &+ 8 &* use.rawValue))
    }

    func sum(_ use: Use) -> Int {
        (0..<ReaderSlots.stripes + Self.sharedStripes).reduce(0) {
            $0 &+ number(use, Self.stripe($1)).pointee.load(ordering: .relaxed)
        }
    }
}

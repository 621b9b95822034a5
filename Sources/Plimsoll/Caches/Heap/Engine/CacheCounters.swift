import CPlimsollMemory
public import Synchronization

/// Counters of all threads of a cache, each on a cache line that suits its writers: the total alone, and uses on
/// per-thread stripes. A shared counter would cost more than the look-up. A locked instruction would keep the next
/// look-up's reads from starting before this one's have ended.
@usableFromInline
// Unchecked: a pointer to atomics, which live as long as the cache.
struct CacheCounters: @unchecked Sendable {
    @usableFromInline let base: UnsafeMutableRawPointer

    /// Number of stripes for threads that have none of their own.
    private static var sharedLanes: Int { 4 }

    /// Returns the offset of a stripe. The cache lines of the total and the bound come first.
    static func lane(_ number: Int) -> Int { 64 * (number + 2) }

    init() {
        let byteCount = Self.lane(ThreadSeats.lanes + Self.sharedLanes)
        base = .allocate(byteCount: byteCount, alignment: 64)
        base.initializeMemory(as: UInt8.self, repeating: 0, count: byteCount)
    }

    func free() { base.deallocate() }

    /// Sum of the costs of entries and reservations.
    @inlinable @inline(__always)
    var total: UnsafeMutablePointer<Atomic<Int>> { CacheWords.atomic(Int.self, base) }

    /// Reported bound of `total`: lowered only after `total` has been brought down, so never less than what holds
    /// meanwhile.
    var limit: UnsafeMutablePointer<Atomic<Int>> { CacheWords.atomic(Int.self, base + 88) }

    /// Bound of `total` in force. A thread that changes one of the two and then reads the other is ordered with a
    /// thread that does the reverse.
    @inlinable @inline(__always)
    var bound: UnsafeMutablePointer<Atomic<Int>> { CacheWords.atomic(Int.self, base + 64) }

    /// A different start each time, so that small evictions do not always hit the same shard.
    var nextStart: Int {
        CacheWords.atomic(Int.self, base + 80).pointee.wrappingAdd(0x9E37_79B1, ordering: .relaxed).oldValue >> 8
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
    }

    @inlinable @inline(__always)
    func has(_ feature: Feature) -> Bool {
        CacheWords.atomic(UInt8.self, base + (72 &+ feature.rawValue)).pointee.load(ordering: .acquiring) != 0
    }
    /// Marks a feature as used. Released with the feature's state.
    func use(_ feature: Feature) {
        CacheWords.atomic(UInt8.self, base + (72 + feature.rawValue)).pointee.store(1, ordering: .releasing)
    }

    @usableFromInline enum Use: Int { case hit, miss, purge, expiry, replacement, rejection }

    @inlinable @inline(__always)
    func count(_ use: Use) { count(use, ThreadSeat.current) }

    /// Counts a use.
    ///
    /// - Parameter seat: the reader slot of the calling thread.
    @inlinable @inline(__always)
    func count(_ use: Use, _ seat: ThreadSeat?) {
        guard let lane = seat?.lane.pointee.load(ordering: .relaxed), lane > 0 else { return countElsewhere(use) }
        count(use, onLane: lane)
    }

    /// Counts a use on a stripe.
    ///
    /// - Parameter lane: the calling thread's own stripe.
    @inlinable @inline(__always)
    func count(_ use: Use, onLane lane: Int) {
        // Only the owning thread writes to a stripe, so a load and a store lose nothing. The next owner of the
        // reader slot continues with its stripe.
        let number = number(use, lane)
        number.pointee.store(number.pointee.load(ordering: .relaxed) &+ 1, ordering: .relaxed)
    }

    @usableFromInline @inline(never)
    func countElsewhere(_ use: Use) {
        ThreadSeats.take()
        let shared = Int(truncatingIfNeeded: (UInt64(plimsoll_thread_number()) >> 12 &* 0x9E37_79B9_7F4A_7C15) >> 62)
        number(use, Self.lane(ThreadSeats.lanes + shared)).pointee.wrappingAdd(1, ordering: .relaxed)
    }

    @inlinable @inline(__always)
    func number(_ use: Use, _ lane: Int) -> UnsafeMutablePointer<Atomic<Int>> {
        CacheWords.atomic(Int.self, base + (lane &+ 8 &* use.rawValue))
    }

    func sum(_ use: Use) -> Int {
        (0..<ThreadSeats.lanes + Self.sharedLanes).reduce(0) {
            $0 &+ number(use, Self.lane($1)).pointee.load(ordering: .relaxed)
        }
    }
}

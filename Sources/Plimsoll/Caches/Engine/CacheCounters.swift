import CPlimsollMemory
public import Synchronization

/// What all threads of a cache count, each number on a line that fits who writes it: the total alone, and uses on a lane of each thread's own. A shared one
/// would cost more than the look-up, and a locked instruction keep the next look-up's reads from beginning before this one's have ended.
@usableFromInline
// Unchecked: a pointer to atomics, which live as long as the cache.
struct CacheCounters: @unchecked Sendable {
    @usableFromInline let base: UnsafeMutableRawPointer

    /// For threads that have none of their own.
    private static var sharedLanes: Int { 4 }

    /// Where the lane with that number begins: behind the total's line and the bound's.
    static func lane(_ number: Int) -> Int { 64 * (number + 2) }

    init() {
        let byteCount = Self.lane(ThreadSeats.lanes + Self.sharedLanes)
        base = .allocate(byteCount: byteCount, alignment: 64)
        base.initializeMemory(as: UInt8.self, repeating: 0, count: byteCount)
    }

    func free() { base.deallocate() }

    /// Sum of the costs of what is held or has been reserved.
    @inlinable @inline(__always)
    var total: UnsafeMutablePointer<Atomic<Int>> { CacheWords.atomic(Int.self, base) }

    /// The bound of `total` as it is told: never less than what holds while `total` is still being brought down to it.
    var limit: UnsafeMutablePointer<Atomic<Int>> { CacheWords.atomic(Int.self, base + 88) }

    /// The bound of `total`. Whoever changes one of them and then looks at the other is in sequence with who does so the other way round.
    @inlinable @inline(__always)
    var bound: UnsafeMutablePointer<Atomic<Int>> { CacheWords.atomic(Int.self, base + 64) }

    /// Another place to begin at each time, so that what is taken a little at a time is not always taken from the same shard.
    var nextStart: Int { CacheWords.atomic(Int.self, base + 80).pointee.wrappingAdd(0x9E37_79B1, ordering: .relaxed).oldValue >> 8 }

    /// What not every cache has, and what those that have not pay one look for.
    @frozen @usableFromInline
    enum Feature: Int {
        /// Some entry may expire.
        case expiry
        /// Somebody listens to removals.
        case listeners
        /// It declares its charges to a meter.
        case meter
        /// Something has been pinned.
        case pins
        /// Threads may read a shard without its lock where nobody writes.
        case visitors
    }

    @inlinable @inline(__always)
    func has(_ feature: Feature) -> Bool { CacheWords.atomic(UInt8.self, base + (72 &+ feature.rawValue)).pointee.load(ordering: .acquiring) != 0 }
    /// Released with what makes it up.
    func use(_ feature: Feature) { CacheWords.atomic(UInt8.self, base + (72 + feature.rawValue)).pointee.store(1, ordering: .releasing) }

    @usableFromInline enum Use: Int { case hit, miss, purge, expiry, replacement, rejection }

    @inlinable @inline(__always)
    func count(_ use: Use) { count(use, ThreadSeat.current) }

    /// - Parameter seat: the calling thread's.
    @inlinable @inline(__always)
    func count(_ use: Use, _ seat: ThreadSeat?) {
        guard let lane = seat?.lane.pointee.load(ordering: .relaxed), lane > 0 else { return countElsewhere(use) }
        count(use, onLane: lane)
    }

    /// - Parameter lane: the calling thread's own.
    @inlinable @inline(__always)
    func count(_ use: Use, onLane lane: Int) {
        // Only its thread writes to a lane, so a load and a store lose nothing; who is given the seat next goes on with its lane.
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
    func number(_ use: Use, _ lane: Int) -> UnsafeMutablePointer<Atomic<Int>> { CacheWords.atomic(Int.self, base + (lane &+ 8 &* use.rawValue)) }

    func sum(_ use: Use) -> Int {
        (0..<ThreadSeats.lanes + Self.sharedLanes).reduce(0) { $0 &+ number(use, Self.lane($1)).pointee.load(ordering: .relaxed) }
    }
}

public import CPlimsollMemory
public import Synchronization

/// What all threads of a cache count, each number on a line that fits who writes it: the total alone, and uses on one of a few lines by thread, as a shared one
/// would cost more than the look-up.
@usableFromInline
// Unchecked: a pointer to atomics, which live as long as the cache.
struct CacheCounters: @unchecked Sendable {
    @usableFromInline let base: UnsafeMutableRawPointer

    @inlinable static var stripes: Int { 8 }

    init() {
        base = .allocate(byteCount: 64 * (Self.stripes + 2), alignment: 64)
        base.initializeMemory(as: UInt8.self, repeating: 0, count: 64 * (Self.stripes + 2))
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
    }

    @inlinable @inline(__always)
    func has(_ feature: Feature) -> Bool { CacheWords.atomic(UInt8.self, base + (72 &+ feature.rawValue)).pointee.load(ordering: .acquiring) != 0 }
    /// Released with what makes it up.
    func use(_ feature: Feature) { CacheWords.atomic(UInt8.self, base + (72 + feature.rawValue)).pointee.store(1, ordering: .releasing) }

    @usableFromInline enum Use: Int { case hit, miss, purge, expiry, replacement, rejection }

    /// Which line a thread with `address` on its stack counts on. Stacks are often a power of two apart: the low bits say nothing.
    @inlinable @inline(__always)
    static func stripe(_ address: UInt) -> Int { Int(truncatingIfNeeded: ((address &>> 19) &* 0x9E37_79B9_7F4A_7C15) &>> 61) }

    @inlinable @inline(__always)
    func count(_ use: Use) {
        let stripe = Self.stripe(plimsoll_thread_number())
        CacheWords.atomic(Int.self, base + 64 &* (stripe &+ 2) + 8 &* use.rawValue).pointee.wrappingAdd(1, ordering: .relaxed)
    }

    func sum(_ use: Use) -> Int {
        (2..<Self.stripes + 2).reduce(0) { $0 + CacheWords.atomic(Int.self, base + 64 * $1 + 8 * use.rawValue).pointee.load(ordering: .relaxed) }
    }
}

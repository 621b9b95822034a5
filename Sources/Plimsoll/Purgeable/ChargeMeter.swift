import Synchronization

/// Exact and immediate sum of the bytes that registered caches have taken: the one signal no outside daemon can
/// have.
///
/// After every reading, the manager sets an allowance until the next reading. A cache that would exceed the
/// allowance evicts as many of its own bytes instead of growing. Caches alone therefore never cross the line. At
/// half of the allowance the manager is woken to read again.
package final class ChargeMeter: Sendable {
    // Relaxed everywhere: each number stands for itself and publishes no other memory. A charge that misses a new
    // ceiling by an instant is bounded by one entry per thread, and the next reading sees that charge.
    private let held = Atomic<Int>(0)
    private let ceiling = Atomic<Int>(Int.max)
    private let wakeMark = Atomic<Int>(Int.max)
    /// Room that caches above their share leave to the others.
    private let reserved = Atomic<Int>(0)
    /// Caches above their share, which make room for those below.
    private let donors = Mutex<[any SharedPurgeable]>([])
    private let wakesWhenRefusing: Bool
    private let wake: @Sendable () -> Void

    /// Creates a meter.
    ///
    /// - Parameter wakesWhenRefusing: true if a refused charge wakes the manager as well. Set to false where
    ///   refusals are normal and harmless: a purgeable with volatile memory that asks for more than there is would
    ///   wake the manager each time.
    package init(wakesWhenRefusing: Bool = true, wake: @escaping @Sendable () -> Void) {
        self.wakesWhenRefusing = wakesWhenRefusing
        self.wake = wake
    }

    /// Bytes declared and not released. Off by the inserts in progress if a cache is registered while other threads
    /// insert. Only the polling pace depends on the value, because room is counted from one reading to the next.
    package var heldBytes: ByteCount { ByteCount(held.load(ordering: .relaxed)) }

    /// Declares `count` bytes if there is room for them.
    ///
    /// - Parameter leavesReserve: true to leave the room reserved for caches below their share.
    /// - Returns: true if the bytes were declared. If false, evict to make room, or do without.
    /// - Complexity: one atomic compare-and-swap; wakes the manager at most once per reading.
    package func take(_ count: Int, leavesReserve: Bool = false) -> Bool {
        let reserve = leavesReserve ? reserved.load(ordering: .relaxed) : 0
        var now = held.load(ordering: .relaxed)
        while true {
            let (next, overflow) = now.addingReportingOverflow(count)
            if overflow || next > ceiling.load(ordering: .relaxed) &- reserve {
                if wakesWhenRefusing { ring() }
                return false
            }
            let (exchanged, original) = held.weakCompareExchange(expected: now, desired: next, ordering: .relaxed)
            if exchanged {
                if next > wakeMark.load(ordering: .relaxed) { ring() }
                return true
            }
            now = original
        }
    }

    /// Declares `count` bytes even without room, for memory that is already held.
    package func takeAnyway(_ count: Int) { held.wrappingAdd(count, ordering: .relaxed) }

    /// Releases `count` bytes declared before.
    package func give(_ count: Int) { held.wrappingSubtract(count, ordering: .relaxed) }

    /// Sets the caches above their share, the furthest above first, and the bytes that the others lack.
    func share(from donors: [any SharedPurgeable], lacking: Int) {
        // Any cache whose last reference is here goes outside the lock.
        let before = self.donors.withLock { exchange(&$0, donors) }
        withExtendedLifetime(before) {}
        reserved.store(max(0, min(lacking, Int.max / 2)), ordering: .relaxed)
    }

    /// Lets caches above their share evict `count` bytes. For a cache below its share, without a lock held.
    ///
    /// - Returns: the bytes evicted.
    func makeRoom(_ count: Int) -> Int {
        var made = 0
        for donor in donors.withLock({ $0 }) where made < count { made += donor.evictAboveShare(count - made) }
        return made
    }

    /// Bytes that may be taken now without releasing any.
    var room: Int { room(leavesReserve: false) }

    /// Returns the bytes that `take` would grant now.
    func room(leavesReserve: Bool) -> Int {
        let reserve = leavesReserve ? reserved.load(ordering: .relaxed) : 0
        let (room, overflow) = (ceiling.load(ordering: .relaxed) &- reserve).subtractingReportingOverflow(
            held.load(ordering: .relaxed))
        return overflow ? Int.max : max(0, room)
    }

    private func ring() {
        // Only the thread that disarms the wake-up sends it: one wake-up per reading.
        if wakeMark.exchange(Int.max, ordering: .relaxed) != Int.max { wake() }
    }

    /// Sets how much more may be taken until the next reading. The allowance counts from `mark`, the bytes held
    /// when that reading began.
    package func allow(_ allowance: ByteCount, since mark: ByteCount) {
        ceiling.store((mark + allowance).bytes, ordering: .relaxed)
        // With no room at all, every charge would wake the manager, thousands of times a second, to no use. The
        // manager polls often enough then.
        let isSilent = allowance == .max || allowance == .zero
        wakeMark.store(isSilent ? Int.max : (mark + allowance * 0.5).bytes, ordering: .relaxed)
    }
}

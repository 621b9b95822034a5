import Synchronization

/// What registered caches have taken, known exactly and at once: the one signal no outside daemon can have.
///
/// After every reading the manager says how much more they may take until the next. A cache that would take more
/// evicts as much of its own instead of growing, so caches by themselves never cross the line; and half-way there
/// the manager is woken to look again.
public final class ChargeMeter: Sendable {
    // Relaxed everywhere: each number stands for itself and publishes no other memory. A charge that misses a new
    // ceiling by an instant is bounded by one entry a thread, and the next reading sees it.
    private let held = Atomic<Int>(0)
    private let ceiling = Atomic<Int>(Int.max)
    private let bell = Atomic<Int>(Int.max)
    private let ringsWhenRefusing: Bool
    private let wake: @Sendable () -> Void

    /// - Parameter ringsWhenRefusing: whether a charge that is refused wakes the manager as well. Not where refusals are the rule and nothing hangs on them:
    ///   a holder of volatile memory that asks for more than there is would wake it each time.
    init(ringsWhenRefusing: Bool = true, wake: @escaping @Sendable () -> Void) {
        self.ringsWhenRefusing = ringsWhenRefusing
        self.wake = wake
    }

    /// Bytes declared and not given back. Caches registered while others insert may leave it off by what was under way;
    /// nothing but the pace of looking depends on it, since room is counted from one reading to the next.
    public var heldBytes: ByteCount { ByteCount(held.load(ordering: .relaxed)) }

    /// Declares `count` bytes if there is room for them.
    ///
    /// - Returns: whether they were declared. If not, make room by evicting, or do without.
    /// - Complexity: one atomic compare-exchange; wakes the manager at most once a reading.
    public func take(_ count: Int) -> Bool {
        var now = held.load(ordering: .relaxed)
        while true {
            let (next, overflow) = now.addingReportingOverflow(count)
            if overflow || next > ceiling.load(ordering: .relaxed) {
                if ringsWhenRefusing { ring() }
                return false
            }
            let (exchanged, original) = held.weakCompareExchange(expected: now, desired: next, ordering: .relaxed)
            if exchanged {
                if next > bell.load(ordering: .relaxed) { ring() }
                return true
            }
            now = original
        }
    }

    /// Declares `count` bytes whether or not there is room: for what is already there.
    public func takeAnyway(_ count: Int) { held.wrappingAdd(count, ordering: .relaxed) }

    /// Gives back `count` bytes declared before.
    public func give(_ count: Int) { held.wrappingSubtract(count, ordering: .relaxed) }

    /// Bytes that may be taken now without giving any back.
    var room: Int {
        let (room, overflow) = ceiling.load(ordering: .relaxed).subtractingReportingOverflow(held.load(ordering: .relaxed))
        return overflow ? Int.max : max(0, room)
    }

    private func ring() {
        // Whoever disarms the bell rings it: one wake-up a reading.
        if bell.exchange(Int.max, ordering: .relaxed) != Int.max { wake() }
    }

    /// Sets how much more may be taken until the next reading, counted from `mark`, the bytes held when that reading was begun.
    func allow(_ allowance: ByteCount, since mark: ByteCount) {
        ceiling.store((mark + allowance).bytes, ordering: .relaxed)
        // With no room at all every charge would ring, thousands of times a second, and tell nothing: the pace looks often enough then.
        let isSilent = allowance == .max || allowance == .zero
        bell.store(isSilent ? Int.max : (mark + allowance * 0.5).bytes, ordering: .relaxed)
    }
}

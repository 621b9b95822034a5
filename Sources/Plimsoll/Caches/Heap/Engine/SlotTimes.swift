/// Deadlines of the entry in a slot, in nanoseconds of running time; `.max` for never.
@usableFromInline
struct SlotTimes: BitwiseCopyable, Sendable {
    /// Deadline in any case.
    var expires: Int64
    /// Deadline unless the entry is used.
    var idles: Int64
    /// Time from which the next caller that asks for the entry reloads the value.
    var refreshes: Int64
    /// Neighbours in the wheel. The highest eight bits of the first hold the position in the wheel.
    var links: (UInt32, UInt32) = (SlotNode.none, SlotNode.none)

    var deadline: Int64 { min(expires, idles) }

    /// The same deadlines for another slot.
    var kept: SlotTimes { SlotTimes(expires: expires, idles: idles, refreshes: refreshes) }

    init(expires: Int64 = .max, idles: Int64 = .max, refreshes: Int64 = .max) {
        (self.expires, self.idles, self.refreshes) = (expires, idles, refreshes)
    }
}

/// Slots ordered by the time of their next check, in a hierarchical timing wheel (Varghese and Lauck, SOSP 1987).
/// Four rings have 64 buckets each, of 0.13 s, 8.6 s, 9 min and 10 h a bucket. Only inserts advance the wheel.
///
/// A slot whose deadline was postponed stays in its bucket and is moved on when found, so a use costs the wheel
/// nothing.
struct ExpiryWheel {
    private static let rings = 4
    /// Nanoseconds of a tick, as a power of two.
    private static let tickBits: Int64 = 27

    private var heads: ContiguousArray<UInt32> = []
    /// For each ring, one bit for each bucket that holds a slot.
    private var filled: ContiguousArray<UInt64> = []
    /// All ticks before this one have been checked.
    private var tick: Int64 = 0

    var isUsed: Bool { !heads.isEmpty }

    /// Time up to which all slots have been checked.
    var now: Int64 { tick << Self.tickBits }

    /// Starts using the wheel, with all buckets empty.
    mutating func use(at now: Int64) {
        guard !isUsed else { return }
        heads = ContiguousArray(repeating: SlotNode.none, count: Self.rings * 64)
        filled = ContiguousArray(repeating: 0, count: Self.rings)
        tick = now >> Self.tickBits
    }

    /// Adds `slot` to the bucket of its deadline. Does nothing else without a deadline.
    mutating func add(_ slot: UInt32, _ times: inout SlotColumn<SlotTimes>) {
        var own = times[slot]
        own.links = (SlotNode.none, SlotNode.none)
        guard own.deadline != .max else { return times.set(slot, own) }
        // The first tick after the deadline.
        let farthest = Int64(1) << (6 * Int64(Self.rings)) - 1
        let due = min(max(tick, (own.deadline >> Self.tickBits) + 1), tick + farthest)
        var ring: Int64 = 0
        while (due - tick) >> (6 * (ring + 1)) != 0 { ring += 1 }
        let bucket = Int(ring) * 64 + Int(due >> (6 * ring) & 63)
        let next = heads[bucket]
        own.links = (SlotNode.none | UInt32(bucket) << 24, next)
        times.set(slot, own)
        if next != SlotNode.none {
            var neighbour = times[next]
            neighbour.links.0 = neighbour.links.0 & 0xFF00_0000 | slot
            times.set(next, neighbour)
        }
        heads[bucket] = slot
        filled[Int(ring)] |= 1 << UInt64(bucket & 63)
    }

    /// Removes `slot` if the wheel contains it.
    mutating func remove(_ slot: UInt32, _ times: inout SlotColumn<SlotTimes>) {
        var own = times[slot]
        let (older, newer, bucket) = (own.links.0 & 0xFF_FFFF, own.links.1, Int(own.links.0 >> 24))
        guard heads[bucket] == slot || older != SlotNode.none else { return }
        if older == SlotNode.none {
            heads[bucket] = newer
        } else {
            var neighbour = times[older]
            neighbour.links.1 = newer
            times.set(older, neighbour)
        }
        if newer != SlotNode.none {
            var neighbour = times[newer]
            neighbour.links.0 = neighbour.links.0 & 0xFF00_0000 | older
            times.set(newer, neighbour)
        }
        if heads[bucket] == SlotNode.none { filled[bucket >> 6] &= ~(1 << UInt64(bucket & 63)) }
        own.links = (SlotNode.none, SlotNode.none)
        times.set(slot, own)
    }

    /// Returns a slot whose deadline has passed, still in the wheel. Returns `nil` if there is none, or if too many
    /// others had to be moved on for now. Empty buckets cost nothing, even if much time has passed since the last
    /// check.
    mutating func due(at now: Int64, _ times: inout SlotColumn<SlotTimes>) -> UInt32? {
        guard isUsed else { return nil }
        let last = now >> Self.tickBits
        for _ in 0..<64 {
            guard let bucket = occupied() else {
                guard tick < last else { return nil }
                skip(to: last)
                continue
            }
            let slot = heads[bucket]
            if times[slot].deadline <= now { return slot }
            remove(slot, &times)
            add(slot, &times)
        }
        return nil
    }

    /// Returns the bucket to empty at this tick. Outer rings come first, as they fill the inner rings.
    private func occupied() -> Int? {
        for ring in (0..<Int64(Self.rings)).reversed() where tick & (1 << (6 * ring) - 1) == 0 {
            let place = tick >> (6 * ring) & 63
            if filled[Int(ring)] & 1 << UInt64(place) != 0 { return Int(ring) * 64 + Int(place) }
        }
        return nil
    }

    /// Advances to the next tick at which a bucket must be emptied, at most to `last`.
    private mutating func skip(to last: Int64) {
        var next = last
        for ring in 0..<Int64(Self.rings) where filled[Int(ring)] != 0 {
            let turn = tick >> (6 * ring), bits = filled[Int(ring)], start = UInt64(turn + 1) & 63
            // The lowest bit is the bucket after this turn's; the highest is this turn's own, which comes a whole
            // round later.
            let ahead = bits >> start | bits << (64 - start & 63)
            next = min(next, (turn + 1 + Int64(ahead.trailingZeroBitCount)) << (6 * ring))
        }
        tick = next
    }
}

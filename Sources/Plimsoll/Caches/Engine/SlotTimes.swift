/// When what is in a slot stops counting, in nanoseconds of running time; `.max` for never.
@usableFromInline
struct SlotTimes: BitwiseCopyable, Sendable {
    /// Whatever happens.
    var expires: Int64
    /// Unless it is used.
    var idles: Int64
    /// From then on it is to be loaded anew by whoever asks for it.
    var refreshes: Int64
    /// Neighbours in the wheel, and above the first, in the highest eight bits, where in it.
    var links: (UInt32, UInt32) = (SlotNode.none, SlotNode.none)

    var deadline: Int64 { min(expires, idles) }

    /// The same for another slot.
    var kept: SlotTimes { SlotTimes(expires: expires, idles: idles, refreshes: refreshes) }

    init(expires: Int64 = .max, idles: Int64 = .max, refreshes: Int64 = .max) {
        (self.expires, self.idles, self.refreshes) = (expires, idles, refreshes)
    }
}

/// Slots by the moment at which they are to be looked at, in a hierarchical wheel (Varghese and Lauck, SOSP 1987): four rings of 64 buckets, of 0.13 s, 8.6 s,
/// 9 min and 10 h a bucket. Nothing turns it but whoever inserts or releases.
///
/// A slot whose deadline was put off is found where it was, and moved on then: a use costs the wheel nothing.
struct ExpiryWheel {
    private static let rings = 4
    /// Nanoseconds of a tick, as a power of two.
    private static let tickBits: Int64 = 27

    private var heads: ContiguousArray<UInt32> = []
    /// For each ring, which of its buckets hold something, a bit each.
    private var filled: ContiguousArray<UInt64> = []
    /// All before this tick has been looked at.
    private var tick: Int64 = 0

    var isUsed: Bool { !heads.isEmpty }

    /// The moment up to which all has been looked at.
    var now: Int64 { tick << Self.tickBits }

    /// Begins with all buckets empty.
    mutating func use(at now: Int64) {
        guard !isUsed else { return }
        heads = ContiguousArray(repeating: SlotNode.none, count: Self.rings * 64)
        filled = ContiguousArray(repeating: 0, count: Self.rings)
        tick = now >> Self.tickBits
    }

    /// Puts `slot` where it is found once its deadline has passed; nowhere if it has none.
    mutating func add(_ slot: UInt32, _ times: inout SlotColumn<SlotTimes>) {
        var own = times[slot]
        own.links = (SlotNode.none, SlotNode.none)
        guard own.deadline != .max else { return times.set(slot, own) }
        // The first tick at which it is over.
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

    /// Takes `slot` out if it is in.
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

    /// A slot whose deadline has passed, still in; `nil` if there is none, or too many others had to be moved on for now. However much time has passed
    /// since the last look, empty buckets cost nothing.
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

    /// The bucket that is to be emptied at this tick: those of the outer rings first, as they fill the inner.
    private func occupied() -> Int? {
        for ring in (0..<Int64(Self.rings)).reversed() where tick & (1 << (6 * ring) - 1) == 0 {
            let place = tick >> (6 * ring) & 63
            if filled[Int(ring)] & 1 << UInt64(place) != 0 { return Int(ring) * 64 + Int(place) }
        }
        return nil
    }

    /// Goes on to the next tick at which a bucket is to be emptied, at most to `last`.
    private mutating func skip(to last: Int64) {
        var next = last
        for ring in 0..<Int64(Self.rings) where filled[Int(ring)] != 0 {
            let turn = tick >> (6 * ring), bits = filled[Int(ring)], start = UInt64(turn + 1) & 63
            // The bucket behind this turn's in the lowest bit, and this turn's own, which comes a whole round later, in the highest.
            let ahead = bits >> start | bits << (64 - start & 63)
            next = min(next, (turn + 1 + Int64(ahead.trailingZeroBitCount)) << (6 * ring))
        }
        tick = next
    }
}

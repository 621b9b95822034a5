import Synchronization

/// Asks purgeables for memory in strides, in proportion to the memory each of them holds. Checks after each stride
/// if memory is still needed. Allocates nothing.
struct ReleasePass {
    let turn: Worker.Turn
    let time: Timekeeper
    /// Tells after a stride if the round should continue.
    let purger: Purger
    /// True for upkeep, which yields to a waiting pass. A pass ends when memory is no longer needed.
    let isUpkeep: Bool
    /// True to skip a class that is expensive to rebuild if all its memory would cover only a small part of the
    /// target.
    var sparesSmall = false

    /// The kind of memory to ask for.
    enum Part {
        /// Volatile pages, which the kernel could reclaim as well.
        case volatile
        /// Memory that only the purgeables can release. Includes a volatile purgeable without volatile memory at
        /// the moment: such a purgeable fell back to ordinary memory.
        case ordinary
        /// All memory.
        case all
    }

    /// The reason why a round ended.
    enum End { case done, noLongerNeeded, replaced }

    /// A class with less than this share of the target is small. Emptying a small class ends no shortage, and its
    /// users pay for the rebuild.
    static let smallShare = 0.25
    /// Bytes to ask for in one call. 128 MiB took 1 to 13 ms by unmapping and 30 to 100 ms from a heap (measured).
    /// Steps of 64 to 256 MiB cost no more than one call for all bytes, and let the round stop when memory is no
    /// longer short.
    static let stride = 128 << 20
    /// Upper bound for the bytes that a purgeable claims to hold. A claim above a pebibyte is wrong, and sums of
    /// such claims must not overflow.
    static let mostHeld = 1 << 50

    /// Asks the classes of `entries` in `range`, one after the other, until `target` bytes are released.
    ///
    /// - Parameters:
    ///   - includesPrecious: true to ask purgeables with precious contents as well.
    ///   - released: running total of released bytes.
    func ask(
        _ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, for part: Part, includesPrecious: Bool,
        target: ByteCount,
        released: inout ByteCount
    ) -> End {
        var position = range.lowerBound
        while position < range.upperBound, released < target {
            let first = entries[position]
            var end = position
            while end < range.upperBound, entries[end].isSameClass(as: first) { end += 1 }
            if first.rebuildCost != .precious || includesPrecious {
                let ended = askClass(entries, position..<end, part, target, &released)
                guard ended == .done else { return ended }
            }
            position = end
        }
        return .done
    }

    /// Asks the caches that share memory, so that the memory left is divided as their shares are: the cache furthest
    /// above its share gives most. Together they give the part of the target that they hold of all memory on offer.
    func askShared(
        _ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, for part: Part, includesPrecious: Bool,
        target: ByteCount, released: inout ByteCount
    ) -> End {
        let pool = part == .ordinary ? PurgeableRegistry.Pool.heap : .volatile
        func share(of entry: PurgeableRegistry.Entry) -> Int { entry.pool == pool ? entry.currentShare : 0 }
        for index in range where includesPrecious || entries[index].rebuildCost != .precious {
            guard count(entries[index], part) else { return .replaced }
        }
        let sparesExpensive = isSpared(.expensive, entries, range, part, target)
        let sparesPrecious = isSpared(.precious, entries, range, part, target)
        func isAsked(_ entry: PurgeableRegistry.Entry) -> Bool {
            switch entry.rebuildCost {
            case .trivial, .cheap: true
            case .expensive: !sparesExpensive
            case .precious: includesPrecious && !sparesPrecious
            }
        }
        var all = 0, held = 0, shares = 0
        for index in range where isAsked(entries[index]) {
            let offered = entries[index].offered.load(ordering: .relaxed), share = share(of: entries[index])
            all += offered
            if share > 0 { (held, shares) = (held + offered, shares + share) }
        }
        guard shares > 0, held > 0, released < target else { return .done }
        let wanted = min(Double(held), Double((target - released).bytes) * Double(held) / Double(all))
        let scale = (Double(held) - wanted) / Double(shares)
        func excess(_ entry: PurgeableRegistry.Entry) -> Double {
            let share = share(of: entry)
            guard share > 0, isAsked(entry) else { return 0 }
            return max(0, Double(entry.offered.load(ordering: .relaxed)) - Double(share) * scale)
        }
        var sum = 0.0
        for index in range { sum += excess(entries[index]) }
        for index in range where excess(entries[index]) > 0 {
            let offered = entries[index].offered.load(ordering: .relaxed)
            let ended = ask(
                entries[index], for: min(offered, Int(wanted * excess(entries[index]) / sum)), of: offered, &released)
            guard ended == .done else { return ended }
        }
        return .done
    }

    /// Returns true if the purgeables of that cost in `range` are to be spared, by their counted memory.
    private func isSpared(
        _ cost: RebuildCost, _ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, _ part: Part,
        _ target: ByteCount
    ) -> Bool {
        guard sparesSmall, part == .ordinary, cost >= .expensive else { return false }
        var offered = 0
        for index in range where entries[index].rebuildCost == cost {
            offered += entries[index].offered.load(ordering: .relaxed)
        }
        return Double(offered) < Double(target.bytes) * Self.smallShare
    }

    /// Asks the purgeables of one class, starting with the quickest to rebuild. Among equals, each is asked in
    /// proportion to the memory on offer. A shortfall of one purgeable is passed on to the next.
    private func askClass(
        _ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, _ part: Part, _ target: ByteCount,
        _ released: inout ByteCount
    ) -> End {
        // By index: iterating an array allocates a coroutine frame in debug builds, and the tests count
        // allocations.
        for index in range {
            guard count(entries[index], part) else { return .replaced }
        }
        if isSpared(entries[range.lowerBound].rebuildCost, entries, range, part, target) { return .done }
        var order = RebuildOrder(range) { entries[$0].lastRate }
        while released < target, order.advance(range, { entries[$0].lastRate }) {
            let ended = askAlike(entries, range, order, target, &released)
            guard ended == .done else { return ended }
        }
        return .done
    }

    private func askAlike(
        _ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, _ order: RebuildOrder, _ target: ByteCount,
        _ released: inout ByteCount
    ) -> End {
        var offeredLeft = 0
        for index in range where order.includes(entries[index].lastRate) {
            offeredLeft += entries[index].offered.load(ordering: .relaxed)
        }
        for index in range where order.includes(entries[index].lastRate) {
            let offered = entries[index].offered.load(ordering: .relaxed)
            let wanted = (target - released).bytes
            if wanted <= 0 { break }
            guard offered > 0 else { continue }
            let share = offeredLeft > 0 ? Double(offered) / Double(offeredLeft) : 1
            offeredLeft -= offered
            let ended = ask(
                entries[index], for: min(offered, Int((Double(wanted) * min(1, share)).rounded(.up))), of: offered,
                &released)
            guard ended == .done else { return ended }
        }
        return .done
    }

    /// Reads the bytes that `entry` could release, and the rebuild time. Returns false if this thread was replaced
    /// meanwhile.
    private func count(_ entry: PurgeableRegistry.Entry, _ part: Part) -> Bool {
        entry.offered.store(0, ordering: .relaxed)
        let now = time.elapsed()
        return turn.call(entry.name, at: now) {
            _ = entry.gate.call(at: now) {
                entry.readRate()
                let held = min(max(0, entry.purgeable.heldBytes), Self.mostHeld)
                let volatile = min(max(0, entry.volatile?.volatileBytes ?? 0), held)
                entry.held.store(held, ordering: .relaxed)
                guard entry.isReleasable else { return }
                entry.offered.store(
                    part == .volatile ? volatile : part == .ordinary && volatile > 0 ? 0 : held, ordering: .relaxed)
            }
        }
    }

    /// Asks one purgeable for `ask` bytes of the `offered`, a stride at a time.
    private func ask(_ entry: PurgeableRegistry.Entry, for ask: Int, of offered: Int, _ released: inout ByteCount)
        -> End
    {
        var left = ask, offered = offered
        while left > 0 {
            let stride = min(left, Self.stride)
            var gained = 0
            let now = time.elapsed()
            let inCharge = turn.call(entry.name, at: now) {
                _ = entry.gate.call(at: now) { gained = entry.purgeable.release(stride) }
            }
            guard inCharge else { return .replaced }
            // A release above the held bytes is an accounting error of the purgeable, not memory.
            gained = min(max(0, gained), max(stride, offered))
            released += ByteCount(gained)
            left -= max(stride, gained)
            offered -= gained
            // The purgeable has no more to release.
            if gained < stride { break }
            if stride == Self.stride, isUpkeep ? purger.isAwaited : purger.isNoLongerNeeded() { return .noLongerNeeded }
        }
        return .done
    }
}

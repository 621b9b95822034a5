import Synchronization

/// Asks holders for memory, each by the share it holds, in strides, and looks again after each whether it is still needed. Allocates nothing.
struct HolderRound {
    let turn: Worker.Turn
    let time: Timekeeper
    /// Whom to ask whether to go on after a stride.
    let purger: Purger
    /// Upkeep gives way to a pass that waits; a pass ends when its need is gone.
    let isUpkeep: Bool
    /// Whether a class that is dear to make again is passed over where all it holds would cover only a small part of what is wanted.
    var sparesSmall = false

    /// What holders are asked for.
    enum Part {
        /// Pages that the kernel could take as well.
        case volatile
        /// What only they can give, a holder of volatile memory that has none just now included: it had to fall back to ordinary memory.
        case ordinary
        /// Everything.
        case all
    }

    /// How it ended.
    enum End { case done, noLongerNeeded, replaced }

    /// A class of less than this share of what is wanted is small: emptying it ends no shortage, and its users pay for it.
    static let smallShare = 0.25
    /// Bytes asked for in one call. 128 MiB took 1 to 13 ms by unmapping and 30 to 100 ms from a heap (measured): steps of 64 to 256 MiB cost no more than
    /// one call for all, and leave off when memory is no longer short.
    static let stride = 128 << 20
    /// A holder that claims more than a pebibyte is wrong, and sums of such claims must not overflow.
    static let mostHeld = 1 << 50

    /// Asks the classes of `entries` in `range`, one after the other, until `target` bytes were let go of.
    ///
    /// - Parameters:
    ///   - includesPrecious: whether holders of what is precious are asked as well.
    ///   - released: bytes let go of so far; grows.
    func ask(
        _ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, for part: Part, includesPrecious: Bool, target: ByteCount,
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

    /// Asks those of a class that are quickest to make again first, of such as are alike each for its share of what is still wanted. What one cannot give falls
    /// to the next.
    private func askClass(
        _ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, _ part: Part, _ target: ByteCount, _ released: inout ByteCount
    ) -> End {
        // By index: iterating an array allocates a coroutine frame in debug builds, and the tests count those.
        for index in range {
            guard count(entries[index], part) else { return .replaced }
        }
        if sparesSmall, part == .ordinary, entries[range.lowerBound].rebuildCost >= .expensive {
            var offered = 0
            for index in range { offered += entries[index].offered.load(ordering: .relaxed) }
            if Double(offered) < Double(target.bytes) * Self.smallShare { return .done }
        }
        var order = RebuildOrder(range) { entries[$0].lastRate }
        while released < target, order.advance(range, { entries[$0].lastRate }) {
            let ended = askAlike(entries, range, order, target, &released)
            guard ended == .done else { return ended }
        }
        return .done
    }

    private func askAlike(
        _ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, _ order: RebuildOrder, _ target: ByteCount, _ released: inout ByteCount
    ) -> End {
        var offeredLeft = 0
        for index in range where order.includes(entries[index].lastRate) { offeredLeft += entries[index].offered.load(ordering: .relaxed) }
        for index in range where order.includes(entries[index].lastRate) {
            let offered = entries[index].offered.load(ordering: .relaxed)
            let wanted = (target - released).bytes
            if wanted <= 0 { break }
            guard offered > 0 else { continue }
            let share = offeredLeft > 0 ? Double(offered) / Double(offeredLeft) : 1
            offeredLeft -= offered
            let ended = ask(entries[index], for: min(offered, Int((Double(wanted) * min(1, share)).rounded(.up))), of: offered, &released)
            guard ended == .done else { return ended }
        }
        return .done
    }

    /// Finds out how much `entry` could give, and how soon that is made again; false if this thread was replaced meanwhile.
    private func count(_ entry: PurgeableRegistry.Entry, _ part: Part) -> Bool {
        entry.held.store(0, ordering: .relaxed)
        entry.offered.store(0, ordering: .relaxed)
        let now = time.elapsed()
        return turn.call(entry.name, at: now) {
            _ = entry.gate.call(at: now) {
                entry.lookAtRate()
                let held = min(max(0, entry.purgeable.heldBytes), Self.mostHeld)
                let volatile = min(max(0, entry.volatile?.volatileBytes ?? 0), held)
                entry.held.store(held, ordering: .relaxed)
                guard entry.isReleasable else { return }
                entry.offered.store(part == .volatile ? volatile : part == .ordinary && volatile > 0 ? 0 : held, ordering: .relaxed)
            }
        }
    }

    /// Asks one holder for `ask` bytes of the `offered`, a stride at a time.
    private func ask(_ entry: PurgeableRegistry.Entry, for ask: Int, of offered: Int, _ released: inout ByteCount) -> End {
        var left = ask, offered = offered
        while left > 0 {
            let stride = min(left, Self.stride)
            var gained = 0
            let now = time.elapsed()
            let inCharge = turn.call(entry.name, at: now) {
                _ = entry.gate.call(at: now) { gained = entry.purgeable.release(stride) }
            }
            guard inCharge else { return .replaced }
            // More than it held is a slip of the holder's counting, not memory.
            gained = min(max(0, gained), max(stride, offered))
            released += ByteCount(gained)
            left -= max(stride, gained)
            offered -= gained
            // It has no more than that.
            if gained < stride { break }
            if stride == Self.stride, isUpkeep ? purger.isAwaited : purger.isNoLongerNeeded() { return .noLongerNeeded }
        }
        return .done
    }
}

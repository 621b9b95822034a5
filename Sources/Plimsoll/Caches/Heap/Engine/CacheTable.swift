import CPlimsollMemory
import Synchronization

/// Bookkeeping of a shard's slots: slots in use, their eviction order, and their hashes. The table knows only the
/// size of keys and values; the holder of the shard's lock moves them in and out.
///
/// The policy is S3-FIFO (Yang et al., SOSP 2023), promoting on one use. Newcomers enter a small queue with a tenth
/// of the cost, and pass to the main queue only if they are used again. Hashes of entries that leave the small
/// queue are remembered for a while. An entry that comes back in that time enters the main queue at once. A use
/// only counts a mark, so nothing moves on a hit.
@usableFromInline
// Unchecked: the table alone owns its memory and moves between threads under its shard's lock; lock-free readers
// see only atomics.
struct CacheTable: ~Copyable, @unchecked Sendable {
    struct Queue {
        var oldest = SlotNode.none
        var newest = SlotNode.none
        /// Sum of costs in the queue: a part of the cache's total, so a sum of these fits into an integer.
        var cost = 0
        var count = 0
    }

    // Fields that every insert needs lie together, in three cache lines.
    /// Published index word for readers.
    let published: UnsafeMutablePointer<Atomic<UInt>>
    /// Number of leading hash bits that all entries of the shard share.
    @usableFromInline var depth: UInt32
    var free = SlotNode.none
    @usableFromInline var count = 0
    /// Number of slots that have ever been in use.
    var top = 0
    var small = Queue()
    var main = Queue()
    var pinned = Queue()
    var ghosts = GhostTable()
    /// True if an entry has left whose hash could not be remembered.
    var hasForgotten = false
    /// True if every entry costs the same and has no tags, times or pins.
    var isPlain = true
    /// Cost of every entry, as long as all have the same.
    var costOfAll = 0
    /// Number of entries reported as evicted.
    @usableFromInline var evictions = 0
    var slots: SlotBlock

    var cells: CacheAllocation
    /// Indexes and blocks that readers may still be in.
    var retired: ContiguousArray<CacheAllocation> = []
    let hasReaders: Bool
    let move: PairMove?
    var costs = SlotColumn<Int>(usual: 0)
    var tagged = SlotColumn<Int32>(usual: TagIndex.none)
    var tags = TagIndex()
    var times = SlotColumn<SlotTimes>(usual: SlotTimes())
    var wheel = ExpiryWheel()
    var pins: [UInt32: Int] = [:]
    @usableFromInline var hits = 0
    @usableFromInline var misses = 0

    /// Share of the cost that newcomers may hold: one part of ten; 5 to 20 % measure within half a point of each
    /// other.
    private static var smallParts: Int { 10 }
    static var leastBits: Int { 5 }

    init(
        pairSize: Int, hasReaders: Bool, depth: UInt32, move: PairMove?, columns: UnsafeMutablePointer<SlotColumns>,
        index: UnsafeMutablePointer<Atomic<UInt>>
    ) {
        slots = SlotBlock(pairSize: pairSize, columns: columns)
        published = index
        (self.hasReaders, self.depth, self.move) = (hasReaders, depth, move)
        cells = CacheAllocation(4 << Self.leastBits)
        index.initialize(to: Atomic(CacheIndex(cells.base, bits: Self.leastBits).word))
    }

    /// Frees everything except the contents of the slots.
    mutating func end() {
        cells.free()
        for allocation in retired { allocation.free() }
        slots.free()
        costs.free()
        tagged.free()
        times.free()
    }

    @usableFromInline
    var index: CacheIndex { CacheIndex(word: published.pointee.load(ordering: .relaxed)) }

    @inline(__always)
    func node(_ slot: UInt32) -> UnsafeMutablePointer<SlotNode> { slots.place(slot).node }

    @inline(__always)
    func mark(_ slot: UInt32) -> UnsafeMutablePointer<Atomic<UInt8>> { slots.place(slot).mark }

    // Mutating, though nothing changes: a borrow across the module boundary would copy the whole table (measured: 5
    // ns a call).
    @usableFromInline @inline(__always)
    var cost: Int { mutating get { small.cost &+ main.cost &+ pinned.cost } }
    /// Returns true if the evictable entries other than the one in `slot` have at least that cost.
    @usableFromInline
    mutating func mayGive(_ cost: Int, besides slot: UInt32?) -> Bool {
        var evictable = small.cost + main.cost
        if let slot, !isPinned(slot) { evictable -= self.cost(of: slot) }
        return evictable >= cost
    }
    @usableFromInline
    mutating func isPinned(_ slot: UInt32) -> Bool { node(slot).pointee.queue == .pinned }
    @usableFromInline @inline(__always)
    mutating func cost(of slot: UInt32) -> Int { isPlain || !costs.isUsed ? costOfAll : costs[slot] }

    // MARK: Adding and removing

    /// Returns a listed and queued slot for an entry with that hash and cost. The caller must still write key and
    /// value. Returns `nil` if the maximum number of slots is in use.
    ///
    /// - Parameter hasEvicted: true if an entry was evicted for this one, so that the ghost table should grow.
    ///   False during a release, because growing allocates.
    @usableFromInline
    mutating func add(_ hash: UInt32, cost: Int, hasEvicted: Bool) -> UInt32? {
        let slot = add(hash, cost: cost, to: ghosts.remove(hash) ? .main : .small)
        if hasEvicted || hasForgotten { makeRoomToRemember() }
        return slot
    }

    @inline(__always)
    private mutating func makeRoomToRemember() {
        ghosts.reserve(count)
        hasForgotten = false
    }

    @inline(__always)
    mutating func add(_ hash: UInt32, cost: Int, to place: SlotNode.Queue) -> UInt32? {
        guard let slot = takeSlot() else { return nil }
        node(slot).pointee.hash = hash
        mark(slot).pointee.store(0, ordering: .relaxed)
        set(slot, cost: cost)
        count += 1
        growIndex()
        index.add(slot, hash)
        append(slot, to: place)
        return slot
    }

    /// Unlists `slot`. The caller must empty the slot before the next `add`, which may reuse it.
    @usableFromInline
    mutating func remove(_ slot: UInt32) {
        unlink(slot)
        release(slot)
    }

    /// Unlists a slot that is in no queue any more. The next newcomer may get the slot.
    @inline(__always)
    private mutating func release(_ slot: UInt32) {
        let index = index, hash = node(slot).pointee.hash
        // A copy of the places, not the table itself, which is being changed.
        let places = slots.places
        index.remove(at: index.place(of: slot, hash)) { places[$0].node.pointee.hash }
        count -= 1
        if !isPlain { removeExtras(slot) }
        node(slot).pointee.link(in: .free, older: SlotNode.none, newer: free)
        if free != SlotNode.none { node(free).pointee.older = slot }
        free = slot
    }

    /// Unlists the least valuable slot; `nil` if no slot may be evicted. The caller must empty the slot before the
    /// next `add`. Allocates nothing.
    ///
    /// - Parameter part: evicts only if the shard's cost exceeds this value.
    /// - Complexity: amortized constant, because each mark is cleared once.
    @usableFromInline
    mutating func evict(over part: Int = -1) -> (slot: UInt32, cost: Int)? {
        guard cost > part, let slot = unlinkVictim() else { return nil }
        release(slot)
        return (slot, cost(of: slot))
    }

    /// Combines `evict` and `add` where all entries have one cost. Returns a slot for that hash, with the old
    /// contents still inside; `nil` if the conditions do not hold. No step has to be undone and redone, which saves
    /// an eighth of the time of inserts into a full cache (measured).
    ///
    /// - Parameter empty: the first empty index cell from the home cell of the hash.
    @usableFromInline
    mutating func renew(_ hash: UInt32, _ empty: UInt32, cost: Int, over part: Int) -> UInt32? {
        ghosts.fetch(hash)
        guard isPlain, cost == costOfAll, self.cost > part, let slot = unlinkVictim() else { return nil }
        let index = index, places = slots.places
        let hole = index.remove(at: index.place(of: slot, node(slot).pointee.hash)) { places[$0].node.pointee.hash }
        node(slot).pointee.hash = hash
        mark(slot).pointee.store(0, ordering: .relaxed)
        index.add(slot, hash, at: empty, or: hole)
        append(slot, to: ghosts.remove(hash) ? .main : .small)
        makeRoomToRemember()
        return slot
    }

    /// Removes the least valuable slot from its queue; the slot stays listed.
    @inline(__always)
    private mutating func unlinkVictim() -> UInt32? {
        while true {
            let isSmallFull = small.cost >= (small.cost &+ main.cost) / Self.smallParts
            let fromSmall = small.oldest != SlotNode.none && (isSmallFull || main.oldest == SlotNode.none)
            let slot = fromSmall ? small.oldest : main.oldest
            guard slot != SlotNode.none else { return nil }
            let marks = mark(slot).pointee.load(ordering: .relaxed)
            unlinkOldest(slot, of: fromSmall ? .small : .main)
            if marks > 0 {
                mark(slot).pointee.store(fromSmall ? 0 : marks &- 1, ordering: .relaxed)
                append(slot, to: .main)
                continue
            }
            if fromSmall, !ghosts.insert(node(slot).pointee.hash) { hasForgotten = true }
            fetchNext(fromSmall ? small.oldest : main.oldest)
            return slot
        }
    }

    /// Prefetches the memory that the next two evictions here will read, since hardly any of it is in the
    /// processor's cache. Prefetching saves a third of the time of inserts that evict (measured). The node of the
    /// next victim is cached by now, so its other memory is known.
    @inline(__always)
    private func fetchNext(_ slot: UInt32) {
        guard slot != SlotNode.none else { return }
        let place = slots.place(slot), hash = place.node.pointee.hash, index = index
        plimsoll_prefetch(place.pair)
        plimsoll_prefetch(index.cells + Int(hash & index.mask))
        ghosts.fetch(hash)
        let after = place.node.pointee.newer
        guard after != SlotNode.none else { return }
        let next = slots.place(after)
        plimsoll_prefetch(next.node)
        plimsoll_prefetch(next.mark)
    }

    @inline(__always)
    mutating func set(_ slot: UInt32, cost: Int) {
        if !isPlain || cost != costOfAll { setOther(slot, cost: cost) }
    }

    @inline(never)
    private mutating func setOther(_ slot: UInt32, cost: Int) {
        if !costs.isUsed {
            if cost == costOfAll { return }
            if count == 0 {
                costOfAll = cost
                return
            }
            isPlain = false
            costs.use(top, filledWith: costOfAll)
        }
        costs.set(slot, cost)
    }
}

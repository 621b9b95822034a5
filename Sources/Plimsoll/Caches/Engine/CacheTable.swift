import CPlimsollMemory
import Synchronization

/// What a shard knows of its slots: which are in use, in which order they go, and under which hash they are found. Of keys and values it knows only how large
/// they are; whoever holds the shard's lock moves them in and out.
///
/// The policy is S3-FIFO (Yang et al., SOSP 2023), promoting on one use: newcomers enter a small queue with a tenth of the cost and pass to the main queue only
/// if they are asked for again; what leaves the small queue is remembered for a while by its hash and enters the main queue at once if it comes back. A use only
/// counts a mark, so nothing moves on a hit.
@usableFromInline
// Unchecked: it alone has the memory that its pointers lead to, and goes from thread to thread under its shard's lock; what readers without it see are atomics.
struct CacheTable: ~Copyable, @unchecked Sendable {
    struct Queue {
        var oldest = SlotNode.none
        var newest = SlotNode.none
        /// Of what is in it: a part of the cache's total, so no sum of these can be too large for an integer.
        var cost = 0
        var count = 0
    }

    // What every insert needs is together, in three lines.
    /// Where readers find the index.
    let published: UnsafeMutablePointer<Atomic<UInt>>
    /// How many bits of the hash all that is in here have in common.
    @usableFromInline var depth: UInt32
    var free = SlotNode.none
    @usableFromInline var count = 0
    /// Slots that have ever been in use.
    var top = 0
    var small = Queue()
    var main = Queue()
    var pinned = Queue()
    var ghosts = GhostTable()
    /// Something has left that could not be remembered.
    var hasForgotten = false
    /// Every entry costs the same, and nothing more is kept of any: no tags, times or pins.
    var isPlain = true
    /// Cost of every entry, as long as all have the same.
    var costOfAll = 0
    /// Entries told as evicted.
    @usableFromInline var evictions = 0
    var slots: SlotBlock

    var cells: CachePiece
    /// Indexes and blocks that readers may still be in.
    var retired: ContiguousArray<CachePiece> = []
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

    /// Share of the cost that newcomers may hold: one part of ten; 5 to 20 % measure within half a point of each other.
    private static var smallParts: Int { 10 }
    static var leastBits: Int { 5 }

    init(
        pairSize: Int, hasReaders: Bool, depth: UInt32, move: PairMove?, columns: UnsafeMutablePointer<SlotColumns>,
        index: UnsafeMutablePointer<Atomic<UInt>>
    ) {
        slots = SlotBlock(pairSize: pairSize, columns: columns)
        published = index
        (self.hasReaders, self.depth, self.move) = (hasReaders, depth, move)
        cells = CachePiece(4 << Self.leastBits)
        index.initialize(to: Atomic(CacheIndex(cells.base, bits: Self.leastBits).word))
    }

    /// Frees everything but what is in the slots.
    mutating func end() {
        cells.free()
        for piece in retired { piece.free() }
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

    // Mutating, though they change nothing: what is borrowed over the module's boundary would be copied whole (measured: 5 ns a call).
    @usableFromInline @inline(__always)
    var cost: Int { mutating get { small.cost &+ main.cost &+ pinned.cost } }
    /// Whether entries that may go have that cost.
    @usableFromInline
    mutating func mayGive(_ cost: Int) -> Bool { small.cost + main.cost >= cost }
    @usableFromInline @inline(__always)
    mutating func cost(of slot: UInt32) -> Int { isPlain || !costs.isUsed ? costOfAll : costs[slot] }

    // MARK: In and out

    /// A slot for what has that hash and cost, listed and in its queue. Key and value are still to be put in. `nil` if all slots there can be are in use.
    ///
    /// - Parameter hasEvicted: for it something has left, so that it is time to make room to remember what leaves. Not on the way of a release, as it allocates.
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

    /// Unlists `slot`, which is still to be emptied before the next `add`, as that may give it out again.
    @usableFromInline
    mutating func remove(_ slot: UInt32) {
        unlink(slot)
        release(slot)
    }

    /// Unlists what is in no queue any more. The next newcomer may have the slot.
    @inline(__always)
    private mutating func release(_ slot: UInt32) {
        let index = index, hash = node(slot).pointee.hash
        // Not the table itself, which is being changed.
        let places = slots.places
        index.remove(at: index.place(of: slot, hash)) { places[$0].node.pointee.hash }
        count -= 1
        if !isPlain { removeExtras(slot) }
        node(slot).pointee.link(in: .free, older: SlotNode.none, newer: free)
        if free != SlotNode.none { node(free).pointee.older = slot }
        free = slot
    }

    /// Unlists the slot least worth keeping, which is still to be emptied before the next `add`; `nil` if there is none that may go. Amortized constant: each
    /// mark is cleared once. Allocates nothing.
    ///
    /// - Parameter part: only if there is more here than that.
    @usableFromInline
    mutating func evict(over part: Int = -1) -> (slot: UInt32, cost: Int)? {
        guard cost > part, let slot = unlinkVictim() else { return nil }
        release(slot)
        return (slot, cost(of: slot))
    }

    /// `evict` and `add` in one, where all is of one cost: a slot for what has that hash, its old content still in it. `nil` if that is not how it is here. Nothing
    /// has to be undone only to be done again: an eighth of the time of inserts into a full cache (measured).
    ///
    /// - Parameter empty: the index's first empty cell from where the hash says.
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

    /// Takes out of its queue what is least worth keeping; it is still listed.
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

    /// Has the processor bring what the next two evictions here will look at, since hardly any of it is in its cache: a third of the time of inserts that evict
    /// (measured). Of the next the node is there by now, so that it is known what else will be needed.
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

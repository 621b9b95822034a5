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
        var cost = 0
        var count = 0
    }

    var slots: SlotBlock
    /// Where readers find the index.
    let published: UnsafeMutablePointer<Atomic<UInt>>
    var cells: CachePiece
    /// Indexes and blocks that readers may still be in.
    var retired: ContiguousArray<CachePiece> = []
    let hasReaders: Bool
    let move: PairMove?
    /// How many bits of the hash all that is in here have in common.
    @usableFromInline var depth: UInt32

    @usableFromInline var count = 0
    /// Slots that have ever been in use.
    var top = 0
    var free = SlotNode.none
    var small = Queue()
    var main = Queue()
    var pinned = Queue()
    var ghosts = GhostTable()
    /// Something has left that could not be remembered.
    @usableFromInline var hasForgotten = false
    /// Cost of every entry, as long as all have the same.
    var costOfAll = -1
    var costs = SlotColumn<Int>(usual: 0)
    var tagged = SlotColumn<Int32>(usual: TagIndex.none)
    var tags = TagIndex()
    var times = SlotColumn<SlotTimes>(usual: SlotTimes())
    var wheel = ExpiryWheel()
    var pins: [UInt32: Int] = [:]
    @usableFromInline var hits = 0
    @usableFromInline var misses = 0
    /// Entries told as evicted.
    @usableFromInline var evictions = 0

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
    @usableFromInline
    var cost: Int { mutating get { small.cost + main.cost + pinned.cost } }
    /// Whether entries that may go have that cost.
    @usableFromInline
    mutating func mayGive(_ cost: Int) -> Bool { small.cost + main.cost >= cost }
    @usableFromInline @inline(__always)
    mutating func cost(of slot: UInt32) -> Int { costs.isUsed ? costs[slot] : max(0, costOfAll) }

    // MARK: In and out

    /// A slot for what has that hash and cost, listed and in its queue. Key and value are still to be put in. `nil` if all slots there can be are in use.
    @usableFromInline
    mutating func add(_ hash: UInt32, cost: Int) -> UInt32? { add(hash, cost: cost, to: ghosts.remove(hash) ? .main : .small) }

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

    /// Unlists `slot`, which is still to be emptied and handed to `recycle`.
    @usableFromInline
    mutating func remove(_ slot: UInt32) {
        let hash = node(slot).pointee.hash
        remove(slot, at: index.place(of: slot, hash))
    }

    @inline(__always)
    private mutating func remove(_ slot: UInt32, at place: UInt32) {
        unlink(slot)
        // Not the table itself, which is being changed.
        let places = slots.places
        index.remove(at: place) { places[$0].node.pointee.hash }
        count -= 1
        if tagged.isUsed { untag(slot) }
        if wheel.isUsed { wheel.remove(slot, &times) }
        if !pins.isEmpty { pins[slot] = nil }
    }

    /// The slot is empty: the next newcomer may have it.
    @usableFromInline
    mutating func recycle(_ slot: UInt32) {
        node(slot).pointee.link(in: .free, older: SlotNode.none, newer: free)
        if free != SlotNode.none { node(free).pointee.older = slot }
        free = slot
    }

    /// Unlists the slot least worth keeping, which is still to be emptied and handed to `recycle`; `nil` if there is none that may go. Amortized constant:
    /// each mark is cleared once. Allocates nothing.
    @usableFromInline
    mutating func evict() -> (slot: UInt32, cost: Int)? {
        while true {
            let fromSmall = small.count > 0 && (main.count == 0 || small.cost >= (small.cost + main.cost) / Self.smallParts)
            let slot = fromSmall ? small.oldest : main.oldest
            guard slot != SlotNode.none else { return nil }
            let marks = mark(slot).pointee.load(ordering: .relaxed)
            if marks > 0 {
                unlink(slot)
                mark(slot).pointee.store(fromSmall ? 0 : marks - 1, ordering: .relaxed)
                append(slot, to: .main)
                continue
            }
            if fromSmall, !ghosts.insert(node(slot).pointee.hash) { hasForgotten = true }
            remove(slot)
            fetchNext(fromSmall ? small.oldest : main.oldest)
            return (slot, cost(of: slot))
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

    /// Has the processor bring what it takes to tell whether that hash is remembered.
    @usableFromInline
    mutating func fetch(_ hash: UInt32) { ghosts.fetch(hash) }

    /// Makes room to remember what leaves. Not on the way of a release, as it allocates.
    @usableFromInline
    mutating func remember() {
        ghosts.reserve(count)
        hasForgotten = false
    }

    @inline(__always)
    mutating func set(_ slot: UInt32, cost: Int) {
        if !costs.isUsed {
            if cost == costOfAll { return }
            if count == 0 {
                costOfAll = cost
                return
            }
            costs.use(top, filledWith: costOfAll)
        }
        costs.set(slot, cost)
    }
}

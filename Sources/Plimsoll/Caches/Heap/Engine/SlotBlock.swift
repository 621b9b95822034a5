public import Synchronization

/// Memory for slots 0, 1, 2 and so on, in one block that doubles when full.
///
/// The block has three columns: pairs of key and value, nodes, and marks. A look-up thus brings only the needed
/// data into the processor's cache. Memory behind the last slot in use has not been touched, so it costs nothing
/// where the block has pages of its own.
/// The addresses of the columns are published atomically, so that lock-free readers find them. Readers access only
/// slots that an index has shown.
@usableFromInline
struct SlotBlock {
    private let columns: UnsafeMutablePointer<SlotColumns>
    private let pairSize: Int
    /// Capacity in slots.
    private(set) var room = 0
    private var allocation: CacheAllocation?

    /// Largest number of slots that a link and an index cell can name.
    static var most: Int { Int(SlotNode.none) }
    private static var least: Int { 16 }

    /// Creates an empty block.
    ///
    /// - Parameters:
    ///   - pairSize: the bytes of a key and a value, a multiple of 4.
    ///   - columns: the place where the columns' addresses are published.
    init(pairSize: Int, columns: UnsafeMutablePointer<SlotColumns>) {
        self.pairSize = pairSize
        self.columns = columns
        columns.initialize(to: SlotColumns())
    }

    func free() { allocation?.free() }

    @inline(__always)
    func place(_ slot: UInt32) -> SlotPlace { places[slot] }

    @inline(__always)
    var places: SlotPlaces { SlotPlaces(columns: columns, pairSize: pairSize) }

    /// Grows the block to at least `count` slots.
    ///
    /// - Parameters:
    ///   - count: the required number of slots.
    ///   - leastMapped: the size in bytes from which the block has pages of its own.
    ///   - used: the number of leading slots that contain all slots in use.
    ///   - move: a closure that moves key and value of a slot in use; `nil` if a bitwise copy is enough.
    /// - Returns: the previous block, if any, whose contents are no longer needed.
    mutating func grow(to count: Int, leastMapped: Int, used: Int, move: PairMove?) -> CacheAllocation? {
        var new = max(room * 2, Self.least)
        while new < count { new *= 2 }
        new = min(new, Self.most)
        let old = allocation,
            next = CacheAllocation(new * (pairSize + SlotNode.byteCount + 1), leastMapped: leastMapped)
        if let old {
            (next.base + new * pairSize).copyMemory(
                from: old.base + room * pairSize, byteCount: used * SlotNode.byteCount)
            // One by one, because readers may be counting uses there. A lost use does no harm.
            let marks = (next.base + new * (pairSize + SlotNode.byteCount)).assumingMemoryBound(to: UInt8.self)
            for slot in 0..<used { marks[slot] = place(UInt32(slot)).mark.pointee.load(ordering: .relaxed) }
            if let move {
                for slot in 0..<used where place(UInt32(slot)).node.pointee.queue != .free {
                    move(old.base + slot * pairSize, next.base + slot * pairSize)
                }
            } else {
                next.base.copyMemory(from: old.base, byteCount: used * pairSize)
            }
        }
        allocation = next
        room = new
        columns.pointee.set(next.base, room: new, pairSize)
        return old
    }

    /// Releases the whole pages behind the first `count` slots to the kernel.
    ///
    /// - Returns: the bytes released.
    @discardableResult
    func trim(to count: Int) -> Int {
        guard let allocation else { return 0 }
        var bytes = 0, start = 0
        for size in [pairSize, SlotNode.byteCount, 1] {
            bytes += allocation.giveBack(start + count * size, to: start + room * size)
            start += room * size
        }
        return bytes
    }

    /// Hands the whole block to the caller; the next slot will be in a new block.
    mutating func detach() -> Detached? {
        defer { (allocation, room) = (nil, 0) }
        return allocation.map { Detached(allocation: $0, room: room, pairSize: pairSize) }
    }

    /// A block that belongs to no table any more, with the entries in its slots.
    // Unchecked: the block has exactly one owner.
    struct Detached: @unchecked Sendable {
        fileprivate let allocation: CacheAllocation
        fileprivate let room: Int
        fileprivate let pairSize: Int

        /// Calls `body` with the pair of each slot in use, and frees the block.
        func end(_ body: (UnsafeMutableRawPointer) -> Void) {
            let nodes = (allocation.base + room * pairSize).assumingMemoryBound(to: SlotNode.self)
            for slot in 0..<room where nodes[slot].queue != .free { body(allocation.base + slot * pairSize) }
            allocation.free()
        }
    }
}

/// Moves key and value from one pair to another, which is empty.
typealias PairMove = @Sendable (_ from: UnsafeMutableRawPointer, _ to: UnsafeMutableRawPointer) -> Void

/// A column with a number for each slot, allocated only when a slot needs one. Chunks double in size, so growing
/// moves nothing.
struct SlotColumn<Element: BitwiseCopyable> {
    private var allocations: ContiguousArray<CacheAllocation?> = []
    /// The first chunk has 16 slots, the second 32.
    private static var chunks: Int { 21 }
    private static func chunk(of slot: UInt32) -> Int { 59 - (UInt(slot) + 16).leadingZeroBitCount }
    private let usual: Element

    /// Creates an unused column.
    ///
    /// - Parameter usual: the value of slots until they are set.
    init(usual: Element) { self.usual = usual }

    func free() { for allocation in allocations { allocation?.free() } }

    /// Resets the column to unused.
    ///
    /// - Returns: the memory, which the caller now owns.
    mutating func detach() -> [CacheAllocation] {
        defer { allocations = [] }
        return allocations.compactMap { $0 }
    }

    var isUsed: Bool { !allocations.isEmpty }

    private func address(_ slot: UInt32) -> UnsafeMutablePointer<Element>? {
        let chunk = Self.chunk(of: slot)
        return allocations[chunk].map {
            $0.base.assumingMemoryBound(to: Element.self) + (Int(slot) + 16 - (16 << chunk))
        }
    }

    subscript(slot: UInt32) -> Element { isUsed ? address(slot)?.pointee ?? usual : usual }

    /// Starts storing a number for each slot; the first `count` slots get `element`.
    mutating func use(_ count: Int, filledWith element: Element) {
        guard !isUsed else { return }
        allocations = ContiguousArray(repeating: nil, count: Self.chunks)
        for slot in 0..<UInt32(count) {
            reserve(slot)
            set(slot, element)
        }
    }

    /// Allocates room for `slot`, if the column is in use.
    mutating func reserve(_ slot: UInt32) {
        let chunk = Self.chunk(of: slot)
        guard isUsed, allocations[chunk] == nil else { return }
        allocations[chunk] = CacheAllocation((16 << chunk) * MemoryLayout<Element>.stride)
    }

    func set(_ slot: UInt32, _ element: Element) { if isUsed { address(slot)?.pointee = element } }

    /// Releases the memory behind the first `count` slots.
    mutating func trim(to count: Int) -> Int {
        var bytes = 0
        for chunk in allocations.indices {
            guard let allocation = allocations[chunk] else { continue }
            let kept = count - ((16 << chunk) - 16)
            if kept <= 0 {
                allocations[chunk] = nil
                allocation.free()
                bytes += allocation.byteCount
            } else {
                bytes += allocation.giveBack(kept * MemoryLayout<Element>.stride, to: allocation.byteCount)
            }
        }
        return bytes
    }

    var byteCount: Int { allocations.reduce(0) { $0 + ($1?.byteCount ?? 0) } }
}

/// Addresses of a shard's columns. An index cell names a slot by its number plus one, so each address is that of
/// number 0.
@frozen @usableFromInline
struct SlotColumns: ~Copyable {
    @usableFromInline let pairs = Atomic<UInt>(0)
    @usableFromInline let marks = Atomic<UInt>(0)
    @usableFromInline let nodes = Atomic<UInt>(0)

    init() {}

    /// Publishes the columns of a block.
    ///
    /// - Parameter base: the address of a block with `room` slots.
    func set(_ base: UnsafeMutableRawPointer, room: Int, _ pairSize: Int) {
        let start = UInt(bitPattern: base), nodesBegin = start &+ UInt(room * pairSize),
            marksBegin = nodesBegin &+ UInt(room * SlotNode.byteCount)
        nodes.store(nodesBegin &- UInt(SlotNode.byteCount), ordering: .relaxed)
        marks.store(marksBegin &- 1, ordering: .relaxed)
        // Released with the contents that are there already.
        pairs.store(start &- UInt(pairSize), ordering: .releasing)
    }
}

/// Locates the parts of any slot.
struct SlotPlaces {
    let columns: UnsafeMutablePointer<SlotColumns>
    let pairSize: Int

    @inline(__always)
    subscript(slot: UInt32) -> SlotPlace { SlotPlace(slot &+ 1, columns, pairSize) }
}

/// Locates the parts of one slot.
@frozen @usableFromInline
struct SlotPlace {
    @usableFromInline let slotPlusOne: UInt
    @usableFromInline let columns: UnsafeMutablePointer<SlotColumns>
    @usableFromInline let pairSize: UInt

    /// Creates the location of a slot.
    ///
    /// - Parameters:
    ///   - slotPlusOne: the slot number plus one, as in an index cell.
    @inlinable @inline(__always)
    init(_ slotPlusOne: UInt32, _ columns: UnsafeMutablePointer<SlotColumns>, _ pairSize: Int) {
        self.slotPlusOne = UInt(slotPlusOne)
        self.columns = columns
        self.pairSize = UInt(bitPattern: pairSize)
    }

    /// Address of key and value.
    @inlinable @inline(__always)
    var pair: UnsafeMutableRawPointer {
        // Acquires the contents that were there when the shard got the block.
        UnsafeMutableRawPointer(bitPattern: columns.pointee.pairs.load(ordering: .acquiring) &+ slotPlusOne &* pairSize)
            .unsafelyUnwrapped
    }

    @inline(__always)
    var node: UnsafeMutablePointer<SlotNode> {
        UnsafeMutablePointer(
            bitPattern: columns.pointee.nodes.load(ordering: .relaxed) &+ slotPlusOne &* UInt(SlotNode.byteCount)
        ).unsafelyUnwrapped
    }

    /// Number of uses since the slot entered its queue, at most 3. Lock-free readers set the mark. A use that is
    /// lost, or counts for the slot's next entry, does no harm.
    @inlinable @inline(__always)
    var mark: UnsafeMutablePointer<Atomic<UInt8>> {
        UnsafeMutablePointer(bitPattern: columns.pointee.marks.load(ordering: .relaxed) &+ slotPlusOne)
            .unsafelyUnwrapped
    }

    @inlinable @inline(__always)
    func use() {
        let mark = mark, uses = mark.pointee.load(ordering: .relaxed)
        // A hot mark is only read, so its cache line stays with every core that uses the slot.
        if uses < 3 { mark.pointee.store(uses &+ 1, ordering: .relaxed) }
    }
}

/// Queue links of a slot. Accessed only under the lock.
@usableFromInline
struct SlotNode {
    var hash: UInt32
    /// Neighbours in the queue, older and newer; in a free slot, neighbours in the free list. The `older` of a
    /// queue's oldest slot is meaningless.
    private var links: (UInt32, UInt32)

    enum Queue: UInt8 { case free, small, main, pinned }

    @inlinable static var byteCount: Int { 12 }
    static var none: UInt32 { 0xFF_FFFF }

    /// A slot number of 24 bits; the other bits hold the queue.
    @inline(__always)
    var older: UInt32 {
        get { links.0 & 0xFF_FFFF }
        set { links.0 = links.0 & 0xFF00_0000 | newValue }
    }
    @inline(__always)
    var newer: UInt32 {
        get { links.1 }
        set { links.1 = newValue }
    }
    @inline(__always)
    var queue: Queue {
        get { Queue(rawValue: UInt8(links.0 >> 24)).unsafelyUnwrapped }
        set { links.0 = links.0 & 0xFF_FFFF | UInt32(newValue.rawValue) << 24 }
    }

    /// Writes all links at once. A word that is written in parts and then read makes the processor wait until the
    /// parts have reached its cache (measured: 6 ns each time).
    @inline(__always)
    mutating func link(in queue: Queue, older: UInt32, newer: UInt32) {
        links = (older | UInt32(queue.rawValue) << 24, newer)
    }
}

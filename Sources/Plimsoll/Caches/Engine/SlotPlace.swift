public import Synchronization

/// Where a shard's columns are, each as the address that a mention of 0 would lead to: an index mentions a slot by one more than its number.
@frozen @usableFromInline
struct SlotColumns: ~Copyable {
    @usableFromInline let pairs = Atomic<UInt>(0)
    @usableFromInline let marks = Atomic<UInt>(0)
    @usableFromInline let nodes = Atomic<UInt>(0)

    init() {}

    /// - Parameter base: of a block with `room` slots.
    func set(_ base: UnsafeMutableRawPointer, room: Int, _ pairSize: Int) {
        let start = UInt(bitPattern: base), nodesBegin = start &+ UInt(room * pairSize), marksBegin = nodesBegin &+ UInt(room * SlotNode.byteCount)
        nodes.store(nodesBegin &- UInt(SlotNode.byteCount), ordering: .relaxed)
        marks.store(marksBegin &- 1, ordering: .relaxed)
        // Released with what is there already.
        pairs.store(start &- UInt(pairSize), ordering: .releasing)
    }
}

/// Where all slots' parts are.
struct SlotPlaces {
    let columns: UnsafeMutablePointer<SlotColumns>
    let pairSize: Int

    @inline(__always)
    subscript(slot: UInt32) -> SlotPlace { SlotPlace(slot &+ 1, columns, pairSize) }
}

/// Where a slot's parts are.
@frozen @usableFromInline
struct SlotPlace {
    @usableFromInline let mention: UInt
    @usableFromInline let columns: UnsafeMutablePointer<SlotColumns>
    @usableFromInline let pairSize: UInt

    /// - Parameters:
    ///   - mention: the slot plus one, as an index has it.
    @inlinable @inline(__always)
    init(_ mention: UInt32, _ columns: UnsafeMutablePointer<SlotColumns>, _ pairSize: Int) {
        self.mention = UInt(mention)
        self.columns = columns
        self.pairSize = UInt(bitPattern: pairSize)
    }

    /// Key and value.
    @inlinable @inline(__always)
    var pair: UnsafeMutableRawPointer {
        // Acquired with what was there when the block became the shard's.
        UnsafeMutableRawPointer(bitPattern: columns.pointee.pairs.load(ordering: .acquiring) &+ mention &* pairSize).unsafelyUnwrapped
    }

    @inline(__always)
    var node: UnsafeMutablePointer<SlotNode> {
        UnsafeMutablePointer(bitPattern: columns.pointee.nodes.load(ordering: .relaxed) &+ mention &* UInt(SlotNode.byteCount)).unsafelyUnwrapped
    }

    /// Uses since it came into its queue, at most 3. Set by readers without the lock; one that gets lost, or hits the next to live here, is but a use.
    @inlinable @inline(__always)
    var mark: UnsafeMutablePointer<Atomic<UInt8>> {
        UnsafeMutablePointer(bitPattern: columns.pointee.marks.load(ordering: .relaxed) &+ mention).unsafelyUnwrapped
    }

    /// Counts a use.
    @inlinable @inline(__always)
    func use() {
        let mark = mark, uses = mark.pointee.load(ordering: .relaxed)
        // What is hot is only read: its line stays with every core that uses it.
        if uses < 3 { mark.pointee.store(uses &+ 1, ordering: .relaxed) }
    }
}

/// What the queues know of a slot. Only whoever holds the lock looks at it.
@usableFromInline
struct SlotNode {
    var hash: UInt32
    /// Neighbours in the queue, older and newer; in a free slot, of the free ones. Of the oldest of a queue, `older` says nothing.
    private var links: (UInt32, UInt32)

    enum Queue: UInt8 { case free, small, main, pinned }

    @inlinable static var byteCount: Int { 12 }
    static var none: UInt32 { 0xFF_FFFF }

    /// 24 bits, as a slot has; the others say in which queue it is.
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

    /// All at once: a word that is written in parts and then read makes the processor wait until it has reached its cache (measured: 6 ns each time).
    @inline(__always)
    mutating func link(in queue: Queue, older: UInt32, newer: UInt32) { links = (older | UInt32(queue.rawValue) << 24, newer) }
}

public import Synchronization

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
    @usableFromInline let mention: UInt
    @usableFromInline let columns: UnsafeMutablePointer<SlotColumns>
    @usableFromInline let pairSize: UInt

    /// Creates the location of a slot.
    ///
    /// - Parameters:
    ///   - mention: the slot number plus one, as in an index cell.
    @inlinable @inline(__always)
    init(_ mention: UInt32, _ columns: UnsafeMutablePointer<SlotColumns>, _ pairSize: Int) {
        self.mention = UInt(mention)
        self.columns = columns
        self.pairSize = UInt(bitPattern: pairSize)
    }

    /// Address of key and value.
    @inlinable @inline(__always)
    var pair: UnsafeMutableRawPointer {
        // Acquires the contents that were there when the shard got the block.
        UnsafeMutableRawPointer(bitPattern: columns.pointee.pairs.load(ordering: .acquiring) &+ mention &* pairSize)
            .unsafelyUnwrapped
    }

    @inline(__always)
    var node: UnsafeMutablePointer<SlotNode> {
        UnsafeMutablePointer(
            bitPattern: columns.pointee.nodes.load(ordering: .relaxed) &+ mention &* UInt(SlotNode.byteCount)
        ).unsafelyUnwrapped
    }

    /// Number of uses since the slot entered its queue, at most 3. Lock-free readers set the mark. A use that is
    /// lost, or counts for the slot's next entry, does no harm.
    @inlinable @inline(__always)
    var mark: UnsafeMutablePointer<Atomic<UInt8>> {
        UnsafeMutablePointer(bitPattern: columns.pointee.marks.load(ordering: .relaxed) &+ mention).unsafelyUnwrapped
    }

    /// Counts a use.
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

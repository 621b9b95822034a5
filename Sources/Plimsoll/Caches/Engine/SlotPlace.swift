public import Synchronization

/// Where the columns of a chunk are, each as the address at which number 0 would be: slots are numbered from 16 on, so that a number's highest bit says in which
/// chunk it is and no more arithmetic is needed to find it.
@frozen @usableFromInline
struct SlotColumns: ~Copyable {
    @usableFromInline let pairs = Atomic<UInt>(0)
    @usableFromInline let marks = Atomic<UInt>(0)
    @usableFromInline let nodes = Atomic<UInt>(0)

    init() {}

    /// They stand in the order of their numbers' leading zeros, so the last chunk's first.
    static func place(of chunk: Int) -> Int { SlotChunks.most - 1 - chunk }

    /// - Parameters:
    ///   - base: of a chunk with `room` slots; `nil` for none.
    func set(_ base: UnsafeMutableRawPointer?, room: Int, _ pairSize: Int) {
        let start = base.map { UInt(bitPattern: $0) }
        let nodesBegin = room * pairSize, marksBegin = nodesBegin + room * SlotNode.byteCount
        nodes.store(start.map { $0 &+ UInt(nodesBegin) &- UInt(room * SlotNode.byteCount) } ?? 0, ordering: .relaxed)
        marks.store(start.map { $0 &+ UInt(marksBegin) &- UInt(room) } ?? 0, ordering: .relaxed)
        // Released with the others and with the zeros that the chunk is made of.
        pairs.store(start.map { $0 &- UInt(room * pairSize) } ?? 0, ordering: .releasing)
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
    @usableFromInline let number: UInt
    @usableFromInline let columns: UnsafeMutablePointer<SlotColumns>
    @usableFromInline let pairSize: UInt

    /// - Parameters:
    ///   - mention: the slot plus one, as an index has it.
    @inlinable @inline(__always)
    init(_ mention: UInt32, _ columns: UnsafeMutablePointer<SlotColumns>, _ pairSize: Int) {
        number = UInt(mention) &+ 15
        // The last chunk's numbers have 40 leading zeros.
        self.columns = columns + (number.leadingZeroBitCount &- 40)
        self.pairSize = UInt(bitPattern: pairSize)
    }

    static func chunk(of slot: UInt32) -> Int { 59 - (UInt(slot) + 16).leadingZeroBitCount }

    /// Key and value.
    @inlinable @inline(__always)
    var pair: UnsafeMutableRawPointer {
        // Acquired with the zeros that the chunk was made of.
        UnsafeMutableRawPointer(bitPattern: columns.pointee.pairs.load(ordering: .acquiring) &+ number &* pairSize).unsafelyUnwrapped
    }

    @inline(__always)
    var node: UnsafeMutablePointer<SlotNode> {
        UnsafeMutablePointer(bitPattern: columns.pointee.nodes.load(ordering: .relaxed) &+ number &* UInt(SlotNode.byteCount)).unsafelyUnwrapped
    }

    /// Uses since it came into its queue, at most 3. Set by readers without the lock; one that gets lost, or hits the next to live here, is but a use.
    @inlinable @inline(__always)
    var mark: UnsafeMutablePointer<Atomic<UInt8>> {
        UnsafeMutablePointer(bitPattern: columns.pointee.marks.load(ordering: .relaxed) &+ number).unsafelyUnwrapped
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
    var older: UInt32 {
        get { links.0 & 0xFF_FFFF }
        set { links.0 = links.0 & 0xFF00_0000 | newValue }
    }
    var newer: UInt32 {
        get { links.1 }
        set { links.1 = newValue }
    }
    var queue: Queue {
        get { Queue(rawValue: UInt8(links.0 >> 24)).unsafelyUnwrapped }
        set { links.0 = links.0 & 0xFF_FFFF | UInt32(newValue.rawValue) << 24 }
    }
}

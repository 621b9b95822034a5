import Synchronization

/// Memory for slots 0, 1, 2 and so on, in one block that doubles when it is full.
///
/// It has three columns, so that a look-up brings only what it needs into the processor's cache: pairs of key and value, nodes, and marks. What is behind the last
/// slot in use has not been touched, so it costs nothing where the block is pages of its own.
/// Where the columns are is published atomically, so that a reader without the lock finds its way; it asks only for slots that an index has shown it.
@usableFromInline
struct SlotBlock {
    private let columns: UnsafeMutablePointer<SlotColumns>
    private let pairSize: Int
    /// Slots there is room for.
    private(set) var room = 0
    private var piece: CachePiece?

    /// What a link and an index cell can name.
    static var most: Int { Int(SlotNode.none) }
    private static var least: Int { 16 }

    /// - Parameters:
    ///   - pairSize: bytes of a key and a value, a multiple of 4.
    ///   - columns: told where they are.
    init(pairSize: Int, columns: UnsafeMutablePointer<SlotColumns>) {
        self.pairSize = pairSize
        self.columns = columns
        columns.initialize(to: SlotColumns())
    }

    func free() { piece?.free() }

    @inline(__always)
    func place(_ slot: UInt32) -> SlotPlace { places[slot] }

    @inline(__always)
    var places: SlotPlaces { SlotPlaces(columns: columns, pairSize: pairSize) }

    /// Makes room for at least `count` slots.
    ///
    /// - Parameters:
    ///   - leastMapped: from how many bytes on the block is pages of its own.
    ///   - used: slots in use are among so many, the first.
    ///   - move: moves key and value of a slot in use; `nil` if they are but bits.
    /// - Returns: the block before, if there was one, with nothing of worth in it.
    mutating func grow(to count: Int, leastMapped: Int, used: Int, move: PairMove?) -> CachePiece? {
        var new = max(room * 2, Self.least)
        while new < count { new *= 2 }
        new = min(new, Self.most)
        let old = piece, next = CachePiece(new * (pairSize + SlotNode.byteCount + 1), leastMapped: leastMapped)
        if let old {
            (next.base + new * pairSize).copyMemory(from: old.base + room * pairSize, byteCount: used * SlotNode.byteCount)
            // One by one: readers may be counting uses there. Those that get lost are but uses.
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
        piece = next
        room = new
        columns.pointee.set(next.base, room: new, pairSize)
        return old
    }

    /// Gives back the whole pages behind the first `count` slots.
    ///
    /// - Returns: bytes given back.
    @discardableResult
    func trim(to count: Int) -> Int {
        guard let piece else { return 0 }
        var bytes = 0, start = 0
        for size in [pairSize, SlotNode.byteCount, 1] {
            bytes += piece.giveBack(start + count * size, to: start + room * size)
            start += room * size
        }
        return bytes
    }

    /// All there is, which is somebody else's from now on; the next slot is in a new block.
    mutating func detach() -> Detached? {
        defer { (piece, room) = (nil, 0) }
        return piece.map { Detached(piece: $0, room: room, pairSize: pairSize) }
    }

    /// A block that is no table's any more, with what is in it.
    // Unchecked: whoever has it is the only one who has.
    struct Detached: @unchecked Sendable {
        fileprivate let piece: CachePiece
        fileprivate let room: Int
        fileprivate let pairSize: Int

        /// Calls `body` with the pair of each slot in use, and frees the block.
        func end(_ body: (UnsafeMutableRawPointer) -> Void) {
            let nodes = (piece.base + room * pairSize).assumingMemoryBound(to: SlotNode.self)
            for slot in 0..<room where nodes[slot].queue != .free { body(piece.base + slot * pairSize) }
            piece.free()
        }
    }
}

/// Moves key and value from one pair to another, which is empty.
typealias PairMove = @Sendable (_ from: UnsafeMutableRawPointer, _ to: UnsafeMutableRawPointer) -> Void

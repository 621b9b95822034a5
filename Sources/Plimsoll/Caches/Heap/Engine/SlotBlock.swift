import Synchronization

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
    private var piece: CachePiece?

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

    func free() { piece?.free() }

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
    mutating func grow(to count: Int, leastMapped: Int, used: Int, move: PairMove?) -> CachePiece? {
        var new = max(room * 2, Self.least)
        while new < count { new *= 2 }
        new = min(new, Self.most)
        let old = piece, next = CachePiece(new * (pairSize + SlotNode.byteCount + 1), leastMapped: leastMapped)
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
        piece = next
        room = new
        columns.pointee.set(next.base, room: new, pairSize)
        return old
    }

    /// Releases the whole pages behind the first `count` slots to the kernel.
    ///
    /// - Returns: the bytes released.
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

    /// Hands the whole block to the caller; the next slot will be in a new block.
    mutating func detach() -> Detached? {
        defer { (piece, room) = (nil, 0) }
        return piece.map { Detached(piece: $0, room: room, pairSize: pairSize) }
    }

    /// A block that belongs to no table any more, with the entries in its slots.
    // Unchecked: the block has exactly one owner.
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

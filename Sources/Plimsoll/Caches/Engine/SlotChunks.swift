import Synchronization

/// Memory for slots 0, 1, 2 and so on, in chunks of doubling size: growing moves nothing, and an address once found stays good.
///
/// Each chunk has three columns, so that a look-up brings only what it needs into the processor's cache: pairs of key and value, nodes, and marks.
/// Where they are is published atomically, so that a reader without the lock finds its way; it asks only for slots that an index has shown it.
@usableFromInline
struct SlotChunks {
    private let columns: UnsafeMutablePointer<SlotColumns>
    private let pairSize: Int
    private var pieces: ContiguousArray<CachePiece?>

    /// The first chunk has 16 slots, the second 32; the last ends where an index cell can't count further.
    static var most: Int { 20 }
    static var capacity: Int { (16 << most) - 16 }

    /// - Parameters:
    ///   - pairSize: bytes of a key and a value, a multiple of 4.
    ///   - columns: room for `most` of them, which the owner frees after these.
    init(pairSize: Int, columns: UnsafeMutablePointer<SlotColumns>) {
        self.pairSize = pairSize
        self.columns = columns
        for chunk in 0..<Self.most { (columns + chunk).initialize(to: SlotColumns()) }
        pieces = ContiguousArray(repeating: nil, count: Self.most)
    }

    func free() { for piece in pieces { piece?.free() } }

    @inline(__always)
    func place(_ slot: UInt32) -> SlotPlace { places[slot] }

    @inline(__always)
    var places: SlotPlaces { SlotPlaces(columns: columns, pairSize: pairSize) }

    /// Makes sure that there is room for `slot`. Allocates where it is the first of a chunk.
    mutating func reserve(_ slot: UInt32) {
        let chunk = SlotPlace.chunk(of: slot)
        guard pieces[chunk] == nil else { return }
        let piece = CachePiece((16 << chunk) * (pairSize + SlotNode.byteCount + 1))
        pieces[chunk] = piece
        set(chunk, piece)
    }

    private func set(_ chunk: Int, _ piece: CachePiece?) { columns[SlotColumns.place(of: chunk)].set(piece?.base, room: 16 << chunk, pairSize) }

    /// Gives back what lies behind the first `count` slots: whole pages, and whole chunks if no reader can be at them.
    ///
    /// - Returns: bytes given back.
    mutating func trim(to count: Int, hasReaders: Bool) -> Int {
        var bytes = 0
        for chunk in 0..<Self.most {
            guard let piece = pieces[chunk] else { continue }
            let room = 16 << chunk, kept = count - (room - 16)
            if kept <= 0, !hasReaders {
                set(chunk, nil)
                pieces[chunk] = nil
                piece.free()
                bytes += piece.byteCount
            } else if kept < room {
                var start = 0
                for size in [pairSize, SlotNode.byteCount, 1] {
                    bytes += piece.giveBack(start + max(0, kept) * size, to: start + room * size)
                    start += room * size
                }
            }
        }
        return bytes
    }

    /// All there is, which is somebody else's from now on; the next slot is in a new chunk.
    mutating func detach() -> ContiguousArray<CachePiece?> {
        for chunk in 0..<Self.most { set(chunk, nil) }
        defer { pieces = ContiguousArray(repeating: nil, count: Self.most) }
        return pieces
    }

    /// Bytes asked of the system.
    var byteCount: Int { pieces.reduce(0) { $0 + ($1?.byteCount ?? 0) } }
}

import Synchronization

/// Slots that belong to no cache any more, with what is still in them.
// Unchecked: whoever has it is the only one who has.
struct CacheRemains<Key: Hashable & Sendable, Value: Sendable>: @unchecked Sendable {
    private let pieces: ContiguousArray<CachePiece?>
    private let cost: Int

    init(_ pieces: ContiguousArray<CachePiece?>, cost: Int) { (self.pieces, self.cost) = (pieces, cost) }

    /// More than these end on a thread of their own: some 150 ns each, as they lie all over memory (measured).
    private static var mostHere: Int { 1000 }

    /// Ends keys and values, here or, if there are many, elsewhere; then their memory and their charge are given back.
    static func end(_ remains: [CacheRemains], count: Int, meter: ChargeMeter?) {
        if count > mostHere, Thread.start("plimsoll-free", { for part in remains { part.end(meter) } }) { return }
        for part in remains { part.end(meter) }
    }

    private func end(_ meter: ChargeMeter?) {
        for (chunk, piece) in pieces.enumerated() {
            guard let piece else { continue }
            for index in 0..<16 << chunk {
                let place = SlotPlace(chunk, index: index, in: piece, pairSize: SlotLayout<Key, Value>.pairSize)
                if place.node.pointee.queue != .free { SlotLayout<Key, Value>.destroy(place.pair) }
            }
            piece.free()
        }
        meter?.give(cost)
    }
}

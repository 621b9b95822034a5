import Synchronization

/// What was a shard's and is nobody's any more: its memory, and the slots with what is still in them.
struct TableRemains: Sendable {
    /// None if readers without the lock may still be at them; what is in them needs no end then.
    var slots: SlotBlock.Detached?
    var others: ContiguousArray<CachePiece> = []
}

/// The same, with what is in them.
// Unchecked: whoever has it is the only one who has.
struct CacheRemains<Key: Hashable & Sendable, Value: Sendable>: @unchecked Sendable {
    private let table: TableRemains
    private let cost: Int

    init(_ table: TableRemains, cost: Int) { (self.table, self.cost) = (table, cost) }

    /// More than these end on a thread of their own: some 150 ns each, as they lie all over memory (measured).
    private static var mostHere: Int { 1000 }

    /// Ends keys and values, here or, if there are many, elsewhere; then their memory and their charge are given back.
    static func end(_ remains: [CacheRemains], count: Int, meter: ChargeMeter?) {
        if count > mostHere, Thread.start("plimsoll-free", { for part in remains { part.end(meter) } }) { return }
        for part in remains { part.end(meter) }
    }

    private func end(_ meter: ChargeMeter?) {
        table.slots?.end { SlotLayout<Key, Value>.destroy($0) }
        for piece in table.others { piece.free() }
        meter?.give(cost)
    }
}

import Synchronization

/// Detached memory of a shard: blocks and slots, with the entries in them.
struct TableRemains: Sendable {
    /// `nil` if lock-free readers may still be in the slots; their contents need no destruction then.
    var slots: SlotBlock.Detached?
    var others: ContiguousArray<CachePiece> = []
}

/// Detached memory of a shard with typed keys and values.
// Unchecked: the value has exactly one owner.
struct CacheRemains<Key: Hashable & Sendable, Value: Sendable>: @unchecked Sendable {
    private let table: TableRemains
    private let cost: Int

    init(_ table: TableRemains, cost: Int) { (self.table, self.cost) = (table, cost) }

    /// Number of entries above which a separate thread destroys them: some 150 ns each, as they lie all over memory
    /// (measured).
    private static var mostHere: Int { 1000 }

    /// Destroys keys and values, here or, if there are many, on a separate thread. Then frees their memory and
    /// releases their charge.
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

import CPlimsollMemory
public import Synchronization

/// Hash index of slots: open addressing with linear probing over cells of 32 bits. There are no tombstones:
/// removing an entry moves back the entries that it had displaced.
///
/// With `1 << bits` cells, a cell holds the slot plus one in the lowest `bits`. The bits above hold as many of the
/// hash's lowest bits as fit. Up to 65,536 cells, a cell therefore tells its home cell, and removing does not have
/// to read the slots.
///
/// A view in one word on memory owned by other code, so that the view can be published and read atomically. The
/// word is the address, whose lowest six bits hold `bits`.
@frozen @usableFromInline
struct CacheIndex {
    @usableFromInline let word: UInt

    @inlinable @inline(__always)
    init(word: UInt) { self.word = word }

    /// Creates a view.
    ///
    /// - Parameter base: the address of `1 << bits` cells, aligned to 64.
    init(_ base: UnsafeMutableRawPointer, bits: Int) { word = UInt(bitPattern: base) | UInt(bits) }

    @inlinable @inline(__always)
    var cells: UnsafeMutablePointer<Atomic<UInt32>> { UnsafeMutablePointer(bitPattern: word & ~63).unsafelyUnwrapped }

    @inlinable @inline(__always)
    var bits: UInt32 { UInt32(truncatingIfNeeded: word & 31) }

    @inlinable @inline(__always)
    var mask: UInt32 { (1 &<< bits) &- 1 }

    @inlinable @inline(__always)
    subscript(place: UInt32) -> UInt32 {
        // Acquires the slot that the cell names: a block that has doubled must be visible as well.
        cells[Int(truncatingIfNeeded: place)].load(ordering: .acquiring)
    }

    /// Returns true if `cell`, which must not be empty, matches `hash` in all bits that a cell stores.
    @inlinable @inline(__always)
    func mayList(_ hash: UInt32, in cell: UInt32) -> Bool { cell ^ (hash &<< bits) <= mask }

    @inline(__always)
    private func set(_ place: UInt32, _ cell: UInt32) { cells[Int(place)].store(cell, ordering: .releasing) }

    @inline(__always)
    private func cell(_ slot: UInt32, _ hash: UInt32) -> UInt32 { hash &<< bits | (slot &+ 1) }

    /// Returns the cell that lists `slot` under `hash`. The slot must be listed.
    @inline(__always)
    func place(of slot: UInt32, _ hash: UInt32) -> UInt32 {
        let cell = cell(slot, hash), mask = mask
        var place = hash & mask
        while self[place] != cell { place = (place &+ 1) & mask }
        return place
    }

    /// Lists `slot`, which must not be listed. There must be an empty cell.
    @inline(__always)
    func add(_ slot: UInt32, _ hash: UInt32) {
        let mask = mask
        var place = hash & mask
        while self[place] != 0 { place = (place &+ 1) & mask }
        set(place, cell(slot, hash))
    }

    /// Lists `slot` in the first empty cell of its probe sequence: `place`, or `hole`, which has become empty
    /// since.
    @inline(__always)
    func add(_ slot: UInt32, _ hash: UInt32, at place: UInt32, or hole: UInt32) {
        set((hole &- hash) & mask < (place &- hash) & mask ? hole : place, cell(slot, hash))
    }

    /// Replaces `slot` by `other` in the cell of `slot`.
    func move(_ slot: UInt32, to other: UInt32, _ hash: UInt32) { set(place(of: slot, hash), cell(other, hash)) }

    /// Empties the cell at `place` without moving later cells.
    func clear(_ place: UInt32) { set(place, 0) }

    /// Removes the cell at `place`, and returns the cell that is empty now.
    @discardableResult @inline(__always)
    func remove(at place: UInt32, hashOf: (UInt32) -> UInt32) -> UInt32 {
        let bits = bits, mask = mask, isWhole = bits <= 16
        var hole = place, next = (place &+ 1) & mask
        while case let cell = self[next], cell != 0 {
            let home = (isWhole ? cell &>> bits : hashOf((cell & mask) &- 1)) & mask
            // The cell may move back to the hole unless the hole lies before the cell's home.
            if (next &- home) & mask >= (next &- hole) & mask {
                set(hole, cell)
                hole = next
            }
            next = (next &+ 1) & mask
        }
        set(hole, 0)
        return hole
    }
}

/// A hash of 32 bits: the highest bits select the shard, the lowest the cell in the shard's index.
///
/// Integers of 32 and 64 bits go through one multiplication with a per-cache seed (the "folded multiply" of wyhash
/// and of Rust's foldhash). Without the seed, an attacker cannot choose keys that collide. All other keys go
/// through `Hasher`, which costs some 8 ns more.
@frozen @usableFromInline
struct CacheHash: Sendable {
    @usableFromInline let seed: UInt64

    @inlinable
    init(seed: UInt64) { self.seed = seed }

    @inlinable @inline(__always)
    func of<Key: Hashable>(_ key: Key) -> UInt32 {
        // Resolved when specialized: one of these branches is left.
        if Key.self == UInt64.self || Key.self == Int.self || Key.self == UInt.self || Key.self == Int64.self {
            return fold(unsafeBitCast(key, to: UInt64.self))
        }
        if Key.self == UInt32.self || Key.self == Int32.self {
            return fold(UInt64(unsafeBitCast(key, to: UInt32.self)))
        }
        return UInt32(truncatingIfNeeded: key._rawHashValue(seed: Int(truncatingIfNeeded: seed)))
    }

    @inlinable @inline(__always)
    func fold(_ word: UInt64) -> UInt32 {
        let product = (word ^ seed).multipliedFullWidth(by: 0x9E37_79B9_7F4A_7C15)
        let folded = product.high ^ product.low
        return UInt32(truncatingIfNeeded: folded ^ (folded >> 32))
    }
}

public import Synchronization

/// Which slots may hold a key of some hash: open addressing with linear probing over cells of 32 bits, without tombstones: taking out moves back what had been
/// pushed along.
///
/// With `1 << bits` cells, a cell has the slot plus one in its lowest `bits` and above them as many of the hash's lowest as fit. So for up to 65,536 cells it says
/// where it belongs, and neither taking out nor growing has to look at the slots.
///
/// A view on memory that is somebody else's, in one word, so that it can be published and read whole: the address, whose lowest six bits are `bits`.
@frozen @usableFromInline
struct CacheIndex {
    @usableFromInline let word: UInt

    @inlinable @inline(__always)
    init(word: UInt) { self.word = word }

    /// - Parameter base: of `1 << bits` cells, aligned to 64.
    init(_ base: UnsafeMutableRawPointer, bits: Int) { word = UInt(bitPattern: base) | UInt(bits) }

    @inlinable @inline(__always)
    var cells: UnsafeMutablePointer<Atomic<UInt32>> { UnsafeMutablePointer(bitPattern: word & ~63).unsafelyUnwrapped }

    @inlinable @inline(__always)
    var bits: UInt32 { UInt32(truncatingIfNeeded: word & 31) }

    @inlinable @inline(__always)
    var mask: UInt32 { (1 &<< bits) &- 1 }

    @inlinable @inline(__always)
    subscript(place: UInt32) -> UInt32 {
        // Acquired with the slot that it leads to: a chunk that is new as well must be seen.
        cells[Int(truncatingIfNeeded: place)].load(ordering: .acquiring)
    }

    /// Whether `cell`, which is not empty, lists something that has as much in common with `hash` as a cell says.
    @inlinable @inline(__always)
    func mayList(_ hash: UInt32, in cell: UInt32) -> Bool { cell ^ (hash &<< bits) <= mask }

    @inline(__always)
    private func set(_ place: UInt32, _ cell: UInt32) { cells[Int(place)].store(cell, ordering: .releasing) }

    @inline(__always)
    private func cell(_ slot: UInt32, _ hash: UInt32) -> UInt32 { hash &<< bits | (slot &+ 1) }

    /// Where `slot` is listed under `hash`. It must be.
    @inline(__always)
    func place(of slot: UInt32, _ hash: UInt32) -> UInt32 {
        let cell = cell(slot, hash), mask = mask
        var place = hash & mask
        while self[place] != cell { place = (place &+ 1) & mask }
        return place
    }

    /// Lists `slot`, which is not; there must be an empty cell.
    @inline(__always)
    func add(_ slot: UInt32, _ hash: UInt32) {
        let mask = mask
        var place = hash & mask
        while self[place] != 0 { place = (place &+ 1) & mask }
        set(place, cell(slot, hash))
    }

    /// Lists `slot` in the first empty cell from where its hash says: `place`, or `hole`, which has become empty since.
    @inline(__always)
    func add(_ slot: UInt32, _ hash: UInt32, at place: UInt32, or hole: UInt32) {
        set((hole &- hash) & mask < (place &- hash) & mask ? hole : place, cell(slot, hash))
    }

    /// Lists `other` where `slot` was.
    func move(_ slot: UInt32, to other: UInt32, _ hash: UInt32) { set(place(of: slot, hash), cell(other, hash)) }

    /// Makes the cell at `place` empty, whatever comes after it.
    func clear(_ place: UInt32) { set(place, 0) }

    /// Takes out what is at `place`, and says which cell is empty now.
    @discardableResult @inline(__always)
    func remove(at place: UInt32, hashOf: (UInt32) -> UInt32) -> UInt32 {
        let bits = bits, mask = mask, isWhole = bits <= 16
        var hole = place, next = (place &+ 1) & mask
        while case let cell = self[next], cell != 0 {
            let home = (isWhole ? cell &>> bits : hashOf((cell & mask) &- 1)) & mask
            // It may go back to the hole unless that lies before its home.
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

/// An S3-FIFO cache of a few sampled entries, which stands for a larger cache: miniature simulation
/// (Waldspurger, Saemundsson, Ahmad and Park, "Cache modeling and optimization using miniature simulations", USENIX
/// ATC 2017). Holds hashes and costs alone; the policy is that of `CacheTable`.
///
/// Refers to memory that the owner allocates, zeroes and frees. Allocates nothing.
struct MiniatureCache {
    /// Returns the bytes of memory that a cache of `entries` needs, aligned to 4.
    static func byteCount(entries: Int) -> Int {
        entries * (MemoryLayout<Slot>.stride + MemoryLayout<UInt16>.stride) + cellCount(entries)
    }

    /// An entry, linked to its neighbours in the queue.
    private struct Slot {
        var hash: UInt32
        /// Cost in bytes, at most 4 GiB.
        var cost: UInt32
        var older: UInt8
        var newer: UInt8
        var marks: UInt8
        var isMain: Bool
    }

    private struct Queue {
        var oldest = none
        var newest = none
        var cost = 0
    }

    private static let none = UInt8.max
    private static let mostMarks: UInt8 = 3
    /// A power of two, so that at most half of the cells are in use.
    private static func cellCount(_ entries: Int) -> Int { entries > 128 ? 512 : 256 }

    /// Maximum number of entries: a multiple of 16, at most 240. Costs alone would let small entries overfill the cache.
    let mostEntries: Int
    private let slots: UnsafeMutablePointer<Slot>
    /// Fingerprints of the last hashes that left the small queue, as many as entries: a ring; zero marks an empty place.
    private let ghosts: UnsafeMutablePointer<UInt16>
    /// Slot number plus one by hash, with linear probing; zero marks an empty cell.
    private let cells: UnsafeMutablePointer<UInt8>
    private let cellCount: Int
    private var small = Queue()
    private var main = Queue()
    private var free = none
    private var nextGhost = 0
    /// Number of slots that have ever been in use.
    private var top = 0
    private(set) var count = 0
    /// Bound of the sum of costs.
    private(set) var capacity = 0

    /// Creates an empty cache without capacity in `byteCount(entries:)` zeroed bytes at `memory`.
    init(at memory: UnsafeMutableRawPointer, entries: Int) {
        mostEntries = entries
        cellCount = Self.cellCount(entries)
        slots = memory.bindMemory(to: Slot.self, capacity: entries)
        let behind = memory + entries * MemoryLayout<Slot>.stride
        ghosts = behind.bindMemory(to: UInt16.self, capacity: entries)
        cells = (behind + entries * MemoryLayout<UInt16>.stride).bindMemory(to: UInt8.self, capacity: cellCount)
    }

    /// Sum of the costs of the entries.
    var cost: Int { small.cost + main.cost }

    /// Returns true if the cache holds `hash`, and counts the use.
    mutating func use(_ hash: UInt32) -> Bool {
        guard let slot = find(hash) else { return false }
        if slots[slot].marks < Self.mostMarks { slots[slot].marks += 1 }
        return true
    }

    /// Inserts an entry unless the entry is there already or costs more than the capacity.
    mutating func insert(_ hash: UInt32, cost: UInt32) {
        guard Int(cost) <= capacity else { return }
        if let slot = find(hash) {
            change(slot, cost: cost)
            return evictExcess()
        }
        while self.cost + Int(cost) > capacity || count == mostEntries { evict() }
        let isGhost = forgetGhost(hash)
        let slot = takeSlot()
        slots[slot] = Slot(hash: hash, cost: cost, older: Self.none, newer: Self.none, marks: 0, isMain: isGhost)
        count += 1
        append(slot)
        list(slot)
    }

    /// Removes an entry that is no longer valid.
    mutating func remove(_ hash: UInt32) {
        guard let slot = find(hash) else { return }
        unlink(slot)
        release(slot)
    }

    /// Changes the capacity, and evicts what exceeds it.
    mutating func resize(to capacity: Int) {
        self.capacity = max(0, capacity)
        evictExcess()
    }

    /// Removes the entries whose hashes `isKept` refuses.
    mutating func keep(where isKept: (UInt32) -> Bool) {
        for slot in 0..<top where slots[slot].older != Self.freed && !isKept(slots[slot].hash) {
            unlink(slot)
            release(slot)
        }
    }

    // MARK: Queues

    /// Marks a free slot in `Slot.older`; 254 is no slot number.
    private static let freed: UInt8 = 254

    private mutating func evictExcess() { while cost > capacity { evict() } }

    /// Removes the least valuable entry.
    private mutating func evict() {
        while true {
            let isSmallFull = small.cost >= cost / 10
            let isFromSmall = small.oldest != Self.none && (isSmallFull || main.oldest == Self.none)
            let oldest = isFromSmall ? small.oldest : main.oldest
            guard oldest != Self.none else { return }
            let slot = Int(oldest), marks = slots[slot].marks
            unlink(slot)
            if marks > 0 {
                slots[slot].marks = isFromSmall ? 0 : marks - 1
                slots[slot].isMain = true
                append(slot)
                continue
            }
            if isFromSmall { rememberGhost(slots[slot].hash) }
            return release(slot)
        }
    }

    private mutating func append(_ slot: Int) {
        let isMain = slots[slot].isMain, cost = Int(slots[slot].cost), newest = isMain ? main.newest : small.newest
        (slots[slot].older, slots[slot].newer) = (newest, Self.none)
        if newest != Self.none { slots[Int(newest)].newer = UInt8(slot) }
        change(isMain) { queue in
            if newest == Self.none { queue.oldest = UInt8(slot) }
            queue.newest = UInt8(slot)
            queue.cost += cost
        }
    }

    private mutating func unlink(_ slot: Int) {
        let entry = slots[slot]
        if entry.older != Self.none { slots[Int(entry.older)].newer = entry.newer }
        if entry.newer != Self.none { slots[Int(entry.newer)].older = entry.older }
        change(entry.isMain) { queue in
            if entry.older == Self.none { queue.oldest = entry.newer }
            if entry.newer == Self.none { queue.newest = entry.older }
            queue.cost -= Int(entry.cost)
        }
    }

    private mutating func change(_ slot: Int, cost: UInt32) {
        let step = Int(cost) - Int(slots[slot].cost)
        change(slots[slot].isMain) { $0.cost += step }
        slots[slot].cost = cost
    }

    private mutating func change(_ isMain: Bool, _ body: (inout Queue) -> Void) {
        if isMain { body(&main) } else { body(&small) }
    }

    // MARK: Slots

    private mutating func takeSlot() -> Int {
        guard free != Self.none else {
            top += 1
            return top - 1
        }
        defer { free = slots[Int(free)].newer }
        return Int(free)
    }

    /// Unlists an entry that is in no queue, and frees the slot.
    private mutating func release(_ slot: Int) {
        unlist(slot)
        (slots[slot].older, slots[slot].newer) = (Self.freed, free)
        free = UInt8(slot)
        count -= 1
    }

    /// Cell at which the search for `hash` begins.
    private func home(_ hash: UInt32) -> Int { Int((hash &* 0xC2B2_AE35) >> 23) & (cellCount - 1) }

    private func find(_ hash: UInt32) -> Int? {
        var cell = home(hash)
        while cells[cell] != 0 {
            let slot = Int(cells[cell]) - 1
            if slots[slot].hash == hash { return slot }
            cell = (cell + 1) & (cellCount - 1)
        }
        return nil
    }

    private func list(_ slot: Int) {
        var cell = home(slots[slot].hash)
        while cells[cell] != 0 { cell = (cell + 1) & (cellCount - 1) }
        cells[cell] = UInt8(slot + 1)
    }

    /// Empties the cell of a slot, and moves later entries of the same run up (Knuth, vol. 3, 6.4, algorithm R).
    private func unlist(_ slot: Int) {
        var hole = home(slots[slot].hash)
        while cells[hole] != UInt8(slot + 1) { hole = (hole + 1) & (cellCount - 1) }
        var cell = hole
        while true {
            cell = (cell + 1) & (cellCount - 1)
            guard cells[cell] != 0 else { break }
            let home = self.home(slots[Int(cells[cell]) - 1].hash)
            // The entry may move unless its home lies behind the hole, up to the cell.
            let distance = (cell - home) & (cellCount - 1)
            if distance >= (cell - hole) & (cellCount - 1) {
                cells[hole] = cells[cell]
                hole = cell
            }
        }
        cells[hole] = 0
    }

    // MARK: Ghosts

    /// A part of the hash that says nothing of who is sampled, and is not zero. Some other hash in the ring has the same
    /// once in three hundred times.
    private static func fingerprint(_ hash: UInt32) -> UInt16 { max(1, UInt16(truncatingIfNeeded: hash)) }

    private mutating func rememberGhost(_ hash: UInt32) {
        ghosts[nextGhost] = Self.fingerprint(hash)
        nextGhost = nextGhost + 1 == mostEntries ? 0 : nextGhost + 1
    }

    /// Forgets `hash`. Returns true if the hash left the small queue lately: within nine tenths of the entries.
    private mutating func forgetGhost(_ hash: UInt32) -> Bool {
        let fingerprint = Self.fingerprint(hash), wanted = SIMD16<UInt16>(repeating: fingerprint)
        for start in stride(from: 0, to: mostEntries, by: 16) {
            let found = UnsafeRawPointer(ghosts + start).loadUnaligned(as: SIMD16<UInt16>.self) .== wanted
            guard any(found) else { continue }
            for place in start..<start + 16 where ghosts[place] == fingerprint {
                ghosts[place] = 0
                let age = nextGhost - place - 1
                return (age < 0 ? age + mostEntries : age) < max(1, count * 9 / 10)
            }
        }
        return false
    }
}

/// One part of a `PurgeableCache`: an index, its entries in slots, and two queues of slots.
///
/// The policy is S3-FIFO (Yang et al., SOSP 2023): newcomers enter a small queue with a tenth of the cost and pass to
/// the main queue only if they are asked for again; what leaves the small queue is remembered for a while by hash and
/// enters the main queue at once if it comes back. A hit only sets a mark, so nothing moves on a hit.
struct CacheShard<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    /// What is kept. Leaves the lock whole, so that key and value are released outside it (T2).
    struct Entry: Sendable {
        var key: Key
        var value: Value
        var cost: Int
        var expiry: Duration?
        var tags: [String]
    }

    private struct Slot: Sendable {
        var entry: Entry?
        var older: Int32 = none
        var newer: Int32 = none
        var isMain = false
        var wasHit = false
        /// The first of its nodes among the tags.
        var tagged = TagIndex.none
    }

    private struct Queue: Sendable {
        var oldest = none
        var newest = none
        var cost = 0
    }

    private static var none: Int32 { -1 }

    private var index: [Key: Int32] = [:]
    private var slots: ContiguousArray<Slot> = []
    private var free = none
    private var small = Queue()
    private var main = Queue()
    private var ghosts = GhostTable()
    private var tags = TagIndex()

    var hits = 0
    var misses = 0
    var evictions = 0

    var count: Int { index.count }
    var cost: Int { small.cost + main.cost }

    /// Share of the cost that newcomers may hold; 5 to 20 % measure within half a point of each other.
    private static var smallShare: Double { 0.1 }

    enum Lookup {
        case hit(Value)
        case miss
        /// Was there, but had expired; take it out of the lock before it dies.
        case expired(Entry)
    }

    mutating func lookup(_ key: Key, now: () -> Duration) -> Lookup {
        guard let slot = index[key], let entry = slots[Int(slot)].entry else {
            misses += 1
            return .miss
        }
        if let expiry = entry.expiry, expiry <= now() {
            misses += 1
            return remove(slot).map(Lookup.expired) ?? .miss
        }
        hits += 1
        slots[Int(slot)].wasHit = true
        return .hit(entry.value)
    }

    /// The value without counting as a use; `nil` if it may expire.
    func peek(_ key: Key) -> Value? {
        guard let slot = index[key], let entry = slots[Int(slot)].entry, entry.expiry == nil else { return nil }
        return entry.value
    }

    /// Puts `entry` in and returns the one it replaces. Room for it has been made before.
    mutating func insert(_ entry: Entry) -> Entry? {
        if let slot = index[entry.key] {
            let old = slots[Int(slot)].entry
            addCost(entry.cost - (old?.cost ?? 0), toMain: slots[Int(slot)].isMain)
            slots[Int(slot)].entry = entry
            slots[Int(slot)].wasHit = true
            untag(slot)
            tag(slot, entry.tags)
            return old
        }
        let fingerprint = UInt32(truncatingIfNeeded: entry.key.hashValue)
        let slot = takeSlot()
        index[entry.key] = slot
        slots[Int(slot)].entry = entry
        slots[Int(slot)].wasHit = false
        tag(slot, entry.tags)
        append(slot, toMain: ghosts.remove(fingerprint))
        ghosts.reserve(index.count)
        return nil
    }

    mutating func removeValue(_ key: Key) -> Entry? {
        guard let slot = index[key] else { return nil }
        return remove(slot)
    }

    /// Takes out the entry least worth keeping; `nil` if there is none. Amortized constant: each mark is cleared once.
    mutating func evict() -> Entry? {
        while true {
            let fromSmall = small.oldest != Self.none && (main.oldest == Self.none || Double(small.cost) >= Double(cost) * Self.smallShare)
            let slot = fromSmall ? small.oldest : main.oldest
            guard slot != Self.none else { return nil }
            if slots[Int(slot)].wasHit {
                unlink(slot)
                slots[Int(slot)].wasHit = false
                append(slot, toMain: true)
                continue
            }
            let entry = remove(slot)
            if fromSmall, let entry { ghosts.insert(UInt32(truncatingIfNeeded: entry.key.hashValue)) }
            evictions += 1
            return entry
        }
    }

    /// Takes out entries until `batch` is full, beginning at slot `position`, which moves on; true when the end is reached.
    mutating func takeOut(from position: inout Int, into batch: CacheBatch<Entry>) -> Bool {
        while position < slots.count {
            if batch.isFull { return false }
            if let removed = remove(Int32(position)) { batch.append(removed) }
            position += 1
        }
        return true
    }

    // MARK: Tags

    /// Number of entries with that tag.
    func count(tag: String) -> Int { tags.count(tag) }

    /// What is put in from now on has this number or a greater one, if it bears tags.
    var tagSequence: UInt64 { tags.sequence }

    /// Takes out entries with that tag, put in before `sequence`, until `batch` is full; true when there are no more.
    mutating func takeOut(tag: String, before sequence: UInt64, into batch: CacheBatch<Entry>) -> Bool {
        while let slot = tags.oldest(tag, before: sequence) {
            if batch.isFull { return false }
            if let removed = remove(slot) { batch.append(removed) }
        }
        return true
    }

    private mutating func tag(_ slot: Int32, _ names: [String]) {
        if !names.isEmpty { slots[Int(slot)].tagged = tags.add(slot, names) }
    }

    private mutating func untag(_ slot: Int32) {
        guard slots[Int(slot)].tagged != TagIndex.none else { return }
        tags.remove(slots[Int(slot)].tagged)
        slots[Int(slot)].tagged = TagIndex.none
    }

    // MARK: Slots and queues

    private mutating func takeSlot() -> Int32 {
        if free != Self.none {
            let slot = free
            free = slots[Int(slot)].newer
            return slot
        }
        slots.append(Slot())
        return Int32(slots.count - 1)
    }

    private mutating func remove(_ slot: Int32) -> Entry? {
        guard let entry = slots[Int(slot)].entry else { return nil }
        unlink(slot)
        untag(slot)
        index.removeValue(forKey: entry.key)
        slots[Int(slot)].entry = nil
        slots[Int(slot)].newer = free
        free = slot
        return entry
    }

    private mutating func append(_ slot: Int32, toMain: Bool) {
        let newest = toMain ? main.newest : small.newest
        slots[Int(slot)].isMain = toMain
        slots[Int(slot)].older = newest
        slots[Int(slot)].newer = Self.none
        if newest != Self.none { slots[Int(newest)].newer = slot }
        if toMain {
            main.newest = slot
            if main.oldest == Self.none { main.oldest = slot }
        } else {
            small.newest = slot
            if small.oldest == Self.none { small.oldest = slot }
        }
        addCost(slots[Int(slot)].entry?.cost ?? 0, toMain: toMain)
    }

    private mutating func unlink(_ slot: Int32) {
        let (older, newer, isMain) = (slots[Int(slot)].older, slots[Int(slot)].newer, slots[Int(slot)].isMain)
        if older != Self.none { slots[Int(older)].newer = newer }
        if newer != Self.none { slots[Int(newer)].older = older }
        if isMain {
            if main.oldest == slot { main.oldest = newer }
            if main.newest == slot { main.newest = older }
        } else {
            if small.oldest == slot { small.oldest = newer }
            if small.newest == slot { small.newest = older }
        }
        addCost(-(slots[Int(slot)].entry?.cost ?? 0), toMain: isMain)
    }

    private mutating func addCost(_ cost: Int, toMain: Bool) {
        if toMain { main.cost += cost } else { small.cost += cost }
    }
}

/// Entries on their way out: taken under a lock, released after it. Used by one thread at a time.
///
/// Plain memory instead of an array, because unspecialized generic code allocates when it looks up an array's conformances.
// Unchecked: whoever uses it has taken it out of the cache's mutex or made it, and puts it back when done; one thread at a time.
final class CacheBatch<Entry: Sendable>: @unchecked Sendable {
    private let entries: UnsafeMutablePointer<Entry>
    private let capacity: Int
    private(set) var count = 0

    init(capacity: Int) {
        self.capacity = capacity
        entries = .allocate(capacity: capacity)
    }

    deinit {
        drain { _ in }
        entries.deallocate()
    }

    var isFull: Bool { count == capacity }

    func append(_ entry: consuming Entry) {
        (entries + count).initialize(to: entry)
        count += 1
    }

    /// Hands each entry to `body` and forgets it.
    func drain(_ body: (borrowing Entry) -> Void) {
        var position = 0
        while position < count {
            body((entries + position).move())
            position += 1
        }
        count = 0
    }
}

/// Hashes of what left the small queue lately, one a cell: a later one overwrites an earlier.
///
/// An approximation of the paper's queue in a table of about as many cells as there are entries. Only `reserve`,
/// called on inserting, allocates: evicting under pressure must not.
struct GhostTable: Sendable {
    private var cells: ContiguousArray<UInt32> = []

    /// Makes room to remember about as many as `entries`; a table that grows forgets.
    mutating func reserve(_ entries: Int) {
        guard cells.count < entries / 2 || cells.isEmpty else { return }
        var size = 64
        while size < entries { size *= 2 }
        cells = ContiguousArray(repeating: 0, count: size)
    }

    mutating func insert(_ fingerprint: UInt32) {
        guard !cells.isEmpty else { return }
        cells[cell(fingerprint)] = fingerprint | 1
    }

    /// Forgets `fingerprint`; true if it was remembered.
    mutating func remove(_ fingerprint: UInt32) -> Bool {
        guard !cells.isEmpty, cells[cell(fingerprint)] == fingerprint | 1 else { return false }
        cells[cell(fingerprint)] = 0
        return true
    }

    private func cell(_ fingerprint: UInt32) -> Int { Int(fingerprint >> 1) & (cells.count - 1) }
}

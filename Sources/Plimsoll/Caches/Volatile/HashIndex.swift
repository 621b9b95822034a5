import CPlimsollMemory
import Synchronization

/// A map from hashes to slots: extendible hashing over pages of 512 words, read without a lock.
///
/// A page has 64 buckets of 8 slots, a cache line each. A hash names two buckets, and the entry goes into the emptier
/// one (balanced allocations, Azar et al. 1999). So pages fill to about three quarters before they split. When a page
/// splits, entries keep their places within the page: nothing is rehashed under a reader. The index takes 11 to 22
/// bytes an entry.
///
/// Writers hold the log's lock. Readers see slots come and go one by one. A reader that finds nothing checks for a page
/// split in the meantime.
// Unchecked: all fields that readers use are atomic, and pages and directories stay mapped until the end; the other
// fields are for writers only, under the log's lock.
final class HashIndex: @unchecked Sendable {
    typealias Slot = UnsafeMutablePointer<Atomic<UInt64>>

    static let pageBytes = 4096
    static let slots = 512
    static let bucketSlots = 8
    static let deepest = 28

    /// Address of the current directory: a depth word, then `1 << depth` addresses of pages. Zero if no memory could be
    /// had.
    let directory = Atomic<UInt>(0)
    /// All directories, old ones included, for late readers. The old ones together are smaller than the current one.
    var directories: [UnsafeMutablePointer<Atomic<UInt>>] = []
    var arenas: [(start: UnsafeMutableRawPointer, bytes: Int, used: Int)] = []
    /// Number of slots in use. Items that the kernel took are included until they are found.
    var count = 0
    var pageCount = 0
    private var swept = 0

    let allowsHugePages: Bool

    init(allowsHugePages: Bool = true) {
        self.allowsHugePages = allowsHugePages
        guard let page = takePage() else { return }
        let first = Self.makeDirectory(depth: 0)
        first[1].store(UInt(bitPattern: page), ordering: .relaxed)
        publish(first)
    }

    deinit {
        for directory in directories { directory.deallocate() }
        for arena in arenas { _ = plimsoll_unmap(arena.start, arena.bytes) }
    }

    // MARK: Reading

    /// Returns the page of a hash; `nil` only if there was no memory for a single page.
    @inline(__always)
    func page(of hash: UInt64) -> Slot? {
        // Acquiring, both: pairs with the releases in `publish` and `split`, so that a page's contents are seen.
        guard let directory = UnsafeMutablePointer<Atomic<UInt>>(bitPattern: directory.load(ordering: .acquiring))
        else { return nil }
        let depth = directory[0].load(ordering: .relaxed)
        // Two shifts, because a shift by all 64 bits shifts nothing.
        let entry = Int(truncatingIfNeeded: (hash >> 1) &>> (63 &- UInt64(depth)))
        return Slot(bitPattern: directory[1 + entry].load(ordering: .acquiring))
    }

    @inline(__always)
    static func bucket(_ hash: UInt64) -> Int { Int(truncatingIfNeeded: hash & 63) * bucketSlots }

    /// Returns the other bucket of a hash, never the same one.
    @inline(__always)
    static func otherBucket(_ hash: UInt64) -> Int {
        Int(truncatingIfNeeded: (hash & 63) ^ max(1, hash >> 6 & 63)) * bucketSlots
    }

    /// The slots in the two buckets of a hash that have the wanted tag.
    struct Candidates {
        fileprivate let first: Slot
        fileprivate let second: Slot
        /// One bit for each slot: the first bucket's, then the second's.
        fileprivate var bits: UInt64

        @inline(__always)
        mutating func next() -> Slot? {
            guard bits != 0 else { return nil }
            let position = bits.trailingZeroBitCount
            bits &= bits &- 1
            return (position < bucketSlots ? first : second) + (position & (bucketSlots - 1))
        }
    }

    /// Compares both buckets at once. Their cache lines are fetched in parallel, and there is one branch instead of up
    /// to sixteen.
    @inline(__always)
    static func candidates(_ hash: UInt64, _ tag: UInt64, in page: Slot) -> Candidates {
        let (first, second) = (page + bucket(hash), page + otherBucket(hash))
        return Candidates(
            first: first, second: second, bits: matches(first, tag) | matches(second, tag) &<< UInt64(bucketSlots))
    }

    @inline(__always)
    private static func matches(_ bucket: Slot, _ tag: UInt64) -> UInt64 {
        var bits: UInt64 = 0
        for slot in 0..<bucketSlots {
            // Relaxed: a caller that uses a slot loads the slot again.
            let isMatch = SlotWord(bits: bucket[slot].load(ordering: .relaxed)).tag == tag
            bits |= (isMatch ? 1 : 0) &<< UInt64(slot)
        }
        return bits
    }

    /// Returns the slot that holds exactly that place.
    func find(_ word: SlotWord, _ hash: UInt64) -> Slot? {
        guard let page = page(of: hash) else { return nil }
        return Self.find(word, in: page + Self.bucket(hash)) ?? Self.find(word, in: page + Self.otherBucket(hash))
    }

    private static func find(_ word: SlotWord, in bucket: Slot) -> Slot? {
        for slot in 0..<bucketSlots where SlotWord(bits: bucket[slot].load(ordering: .relaxed)).place == word.place {
            return bucket + slot
        }
        return nil
    }

    // MARK: Writing

    enum Placement {
        case placed
        /// The word took the place of this one, which is no longer in the index.
        case displaced(SlotWord)
        /// There is no memory at all.
        case refused
    }

    /// Inserts `word`, which must not be in the index yet.
    ///
    /// - Parameter hashOf: the full hash of the item that a slot names; `nil` if the item is gone, and then the slot is
    ///   cleared.
    func insert(_ word: SlotWord, _ hash: UInt64, hashOf: (SlotWord) -> UInt64?) -> Placement {
        var splits = 0
        while let page = page(of: hash) {
            if place(word, hash, in: page) { return .placed }
            removeGone(in: page + Self.bucket(hash), hashOf)
            removeGone(in: page + Self.otherBucket(hash), hashOf)
            if place(word, hash, in: page) { return .placed }
            // Splits never separate keys whose hashes are all alike.
            guard splits < 3, split(page, hash, hashOf) else { return displace(word, hash, in: page) }
            splits += 1
        }
        return .refused
    }

    private func removeGone(in bucket: Slot, _ hashOf: (SlotWord) -> UInt64?) {
        for slot in 0..<Self.bucketSlots {
            let word = SlotWord(bits: bucket[slot].load(ordering: .relaxed))
            if !word.isEmpty, hashOf(word) == nil { remove(bucket + slot) }
        }
    }

    func remove(_ slot: Slot) {
        slot.pointee.store(0, ordering: .releasing)
        count -= 1
    }

    /// Points `slot` to another place.
    func move(_ slot: Slot, to word: SlotWord) { slot.pointee.store(word.bits, ordering: .releasing) }

    /// Removes all entries. Every page then reads as zeros, so as empty. The memory is released if the kernel takes the
    /// pages.
    func removeAll() {
        // If the kernel does not take the pages, zeros are written. A stale slot would name the next segment with the
        // same number.
        for arena in arenas.indices { _ = plimsoll_empty(arenas[arena].start, arenas[arena].used) }
        count = 0
    }

    /// Sweeps some more pages and clears slots whose items are gone.
    ///
    /// - Returns: true if that ends a round over all pages.
    func sweep(pages: Int, isGone: (SlotWord) -> Bool) -> Bool {
        for _ in 0..<pages {
            guard swept < pageCount else {
                swept = 0
                return true
            }
            let page = pageAddress(swept)
            for slot in 0..<Self.slots {
                let word = SlotWord(bits: page[slot].load(ordering: .relaxed))
                if !word.isEmpty, isGone(word) { remove(page + slot) }
            }
            swept += 1
        }
        return false
    }

    private func place(_ word: SlotWord, _ hash: UInt64, in page: Slot) -> Bool {
        let buckets = (Self.bucket(hash), Self.otherBucket(hash))
        let (first, second) = (Self.room(page + buckets.0), Self.room(page + buckets.1))
        guard
            let slot = first.count >= second.count
                ? first.free.map({ buckets.0 + $0 }) : second.free.map({ buckets.1 + $0 })
        else { return false }
        // Releasing: a reader that finds the word also sees the item's bytes.
        page[slot].store(word.bits, ordering: .releasing)
        count += 1
        return true
    }

    private static func room(_ bucket: Slot) -> (count: Int, free: Int?) {
        var (count, free): (Int, Int?) = (0, nil)
        for slot in 0..<bucketSlots where bucket[slot].load(ordering: .relaxed) == 0 {
            count += 1
            free = free ?? slot
        }
        return (count, free)
    }

    private func displace(_ word: SlotWord, _ hash: UInt64, in page: Slot) -> Placement {
        let slot = page + Self.bucket(hash) + Int(truncatingIfNeeded: word.bits >> 3) % Self.bucketSlots
        let old = SlotWord(bits: slot.pointee.exchange(word.bits, ordering: .acquiringAndReleasing))
        return .displaced(old)
    }
}

/// The place of an item and the number of its recent uses, in one word, so that a reader sees both or neither.
struct SlotWord: Equatable {
    var bits: UInt64

    static let mostUses: UInt64 = 3
    static let use: UInt64 = 1 << 62
    private static let placeMask: UInt64 = Self.use - 1

    init(bits: UInt64) { self.bits = bits }

    /// - Parameters:
    ///   - offset: a multiple of 8 below 2 MiB, never zero.
    ///   - uses: in `0...3`.
    init(segment: Int, offset: Int, hash: UInt64, uses: UInt64 = 0) {
        bits = UInt64(offset) >> 3 | UInt64(segment) << 18 | Self.tag(of: hash) << 38 | uses << 62
    }

    var isEmpty: Bool { bits == 0 }
    var offset: Int { Int(truncatingIfNeeded: bits & 0x3_FFFF) << 3 }
    var segment: Int { Int(truncatingIfNeeded: bits >> 18 & 0xF_FFFF) }
    var tag: UInt64 { bits >> 38 & 0xFF_FFFF }
    var uses: UInt64 { bits >> 62 }
    /// The place alone, without the uses, which readers change.
    var place: UInt64 { bits & Self.placeMask }

    /// Returns 24 bits of the hash that choose neither the page nor the bucket.
    static func tag(of hash: UInt64) -> UInt64 { hash >> 12 & 0xFF_FFFF }
}

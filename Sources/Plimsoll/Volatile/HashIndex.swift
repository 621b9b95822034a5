import CPlimsollMemory
import Synchronization

/// From hashes to slots: extendible hashing over pages of 512 words, read without a lock.
///
/// A page is 64 buckets of 8 slots, a cache line each; an entry stands in one of the two buckets that its hash names (the emptier one: balanced
/// allocations, Azar et al. 1999), so pages fill to about three quarters before they split. When a page splits, entries
/// keep their places within the page: nothing is rehashed under a reader.
/// 11 to 22 bytes an entry.
///
/// Writers hold the log's lock. Readers see slots come and go one by one; one that finds nothing looks whether the page was split meanwhile.
// Unchecked: what readers touch is atomic, and pages and directories stay mapped until the end; the rest is the writers', under the log's lock.
final class HashIndex: @unchecked Sendable {
    typealias Slot = UnsafeMutablePointer<Atomic<UInt64>>

    static let pageBytes = 4096
    static let slots = 512
    static let bucketSlots = 8
    static let deepest = 28

    /// Address of the directory in force: its depth, then `1 << depth` addresses of pages. Zero if no memory could be had.
    let directory = Atomic<UInt>(0)
    /// Also those no longer in force, for readers that are late; they sum up to less than the last.
    var directories: [UnsafeMutablePointer<Atomic<UInt>>] = []
    var arenas: [(start: UnsafeMutableRawPointer, bytes: Int, used: Int)] = []
    /// Slots in use, those of items that the kernel took included until somebody finds out.
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

    /// The page of that hash; `nil` only if there was no memory for a single one.
    @inline(__always)
    func page(of hash: UInt64) -> Slot? {
        // Acquiring, both: pairs with the releases in `publish` and `split`, so that a page's contents are seen.
        guard let directory = UnsafeMutablePointer<Atomic<UInt>>(bitPattern: directory.load(ordering: .acquiring)) else { return nil }
        let depth = directory[0].load(ordering: .relaxed)
        // Shifted in two steps because a shift by all 64 bits is none.
        let entry = Int(truncatingIfNeeded: (hash >> 1) &>> (63 &- UInt64(depth)))
        return Slot(bitPattern: directory[1 + entry].load(ordering: .acquiring))
    }

    @inline(__always)
    static func bucket(_ hash: UInt64) -> Int { Int(truncatingIfNeeded: hash & 63) * bucketSlots }

    /// The other bucket of that hash, never the same.
    @inline(__always)
    static func otherBucket(_ hash: UInt64) -> Int { Int(truncatingIfNeeded: (hash & 63) ^ max(1, hash >> 6 & 63)) * bucketSlots }

    /// Slots of the two buckets of a hash whose tag is the one that is asked for.
    struct Candidates {
        fileprivate let first: Slot
        fileprivate let second: Slot
        /// A bit for each slot: the first bucket's, then the second's.
        fileprivate var bits: UInt64

        @inline(__always)
        mutating func next() -> Slot? {
            guard bits != 0 else { return nil }
            let position = bits.trailingZeroBitCount
            bits &= bits &- 1
            return (position < bucketSlots ? first : second) + (position & (bucketSlots - 1))
        }
    }

    /// Looks at both buckets at once: their lines come from memory side by side, and there is one branch instead of up to sixteen.
    @inline(__always)
    static func candidates(_ hash: UInt64, _ tag: UInt64, in page: Slot) -> Candidates {
        let (first, second) = (page + bucket(hash), page + otherBucket(hash))
        return Candidates(first: first, second: second, bits: matches(first, tag) | matches(second, tag) &<< UInt64(bucketSlots))
    }

    @inline(__always)
    private static func matches(_ bucket: Slot, _ tag: UInt64) -> UInt64 {
        var bits: UInt64 = 0
        for slot in 0..<bucketSlots {
            // Relaxed: whoever goes on with a slot loads it again.
            let isMatch = SlotWord(bits: bucket[slot].load(ordering: .relaxed)).tag == tag
            bits |= (isMatch ? 1 : 0) &<< UInt64(slot)
        }
        return bits
    }

    /// The slot with exactly that place.
    func find(_ word: SlotWord, _ hash: UInt64) -> Slot? {
        guard let page = page(of: hash) else { return nil }
        return Self.find(word, in: page + Self.bucket(hash)) ?? Self.find(word, in: page + Self.otherBucket(hash))
    }

    private static func find(_ word: SlotWord, in bucket: Slot) -> Slot? {
        for slot in 0..<bucketSlots where SlotWord(bits: bucket[slot].load(ordering: .relaxed)).place == word.place { return bucket + slot }
        return nil
    }

    // MARK: Writing

    enum Placement {
        case placed
        /// Instead of this one, which is no longer in.
        case displaced(SlotWord)
        /// There is no memory at all.
        case refused
    }

    /// Puts `word` in; it is not in yet.
    ///
    /// - Parameter hashOf: the whole hash of what a slot says, `nil` if that is gone; then it is taken out.
    func insert(_ word: SlotWord, _ hash: UInt64, hashOf: (SlotWord) -> UInt64?) -> Placement {
        var splits = 0
        while let page = page(of: hash) {
            if place(word, hash, in: page) { return .placed }
            removeGone(in: page + Self.bucket(hash), hashOf)
            removeGone(in: page + Self.otherBucket(hash), hashOf)
            if place(word, hash, in: page) { return .placed }
            // Keys whose hashes are all alike are parted by no number of splits.
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

    /// Another place for what `slot` says.
    func move(_ slot: Slot, to word: SlotWord) { slot.pointee.store(word.bits, ordering: .releasing) }

    /// Forgets everything. Every page reads as zeros afterwards, that is as empty, and its memory is given back if the kernel takes it.
    func removeAll() {
        // Where the kernel does not, zeros are written: a slot that stayed would name whatever its segment's number is given to next.
        for arena in arenas.indices { _ = plimsoll_empty(arenas[arena].start, arenas[arena].used) }
        count = 0
    }

    /// Looks at some more pages for what is gone.
    ///
    /// - Returns: whether that ends a round over all pages.
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
        guard let slot = first.count >= second.count ? first.free.map({ buckets.0 + $0 }) : second.free.map({ buckets.1 + $0 }) else { return false }
        // Releasing: whoever finds the word finds the item's bytes.
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

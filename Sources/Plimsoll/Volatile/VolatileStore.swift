import CPlimsollMemory
import Synchronization

/// Bytes under keys that are bytes, in memory that the kernel may take: what `VolatileCache` puts types on.
///
/// **Reading** takes no lock and writes nothing but a mark: the index says where an item lies, its bytes are copied out, and they were good
/// if their pages' sentinels are unchanged after that. **Writing** goes through the log, under its lock. Address space stays mapped
/// until the end, so a reader that is late reads zeros or another segment's sentinel, never a hole.
@usableFromInline
final class VolatileStore: Sendable {
    let index: HashIndex
    private let table = SegmentTable()
    let log: Mutex<VolatileLog>
    let counters = CacheCounters()
    let listeners = Mutex<[@Sendable (UnsafeRawBufferPointer, RemovalReason) -> Void]>([])
    private let process = ForkGuard.process
    let time: Timekeeper

    init(limit: Int?, allowsHugePages: Bool, isVolatile: Bool, time: Timekeeper) {
        index = HashIndex(allowsHugePages: allowsHugePages)
        var log = VolatileLog(index: index, table: table, limit: limit.map { max(0, $0) }, isVolatile: isVolatile)
        log.allowsHugePages = allowsHugePages
        self.log = Mutex(log)
        self.time = time
    }

    deinit { counters.free() }

    /// Whether this is a forked child: there everything is empty and nothing can be put in.
    var isForked: Bool { !ForkGuard.isProcess(process) }

    // MARK: Reading

    /// An item that was there a moment ago. Its bytes are good if `copy` says so.
    @usableFromInline
    struct Found {
        let slot: HashIndex.Slot
        let word: SlotWord
        let base: UnsafeMutableRawPointer
        let generation: UInt64
        /// Where the value begins.
        let start: Int
        /// Bytes of the value.
        @usableFromInline let count: Int
    }

    /// The item under a key; `nil` if there is none, or if the kernel took it.
    ///
    /// - Parameters:
    ///   - key: the bytes of the key, at most a page.
    ///   - isSame: whether those bytes are the same key although they differ; asked for keys with the same hash.
    @usableFromInline
    func find(_ hash: UInt64, _ key: UnsafeRawBufferPointer, isSame: (UnsafeRawBufferPointer) -> Bool) -> Found? {
        let tag = SlotWord.tag(of: hash)
        while let page = index.page(of: hash) {
            var candidates = HashIndex.candidates(hash, tag, in: page)
            while let slot = candidates.next() {
                // Acquiring: pairs with the release that published the word, so the item's bytes are seen.
                let word = SlotWord(bits: slot.pointee.load(ordering: .acquiring))
                guard word.tag == tag, !word.isEmpty else { continue }
                switch look(slot, word, hash, key, isSame) {
                case (.found(let found), _): return found
                case (.other, _): continue
                case (.taken, let word): forget(slot, word)
                case (.expired, let word): expire(slot, word)
                }
            }
            // Nothing there: but was the page parted while we looked?
            atomicMemoryFence(ordering: .acquiring)
            if index.page(of: hash) == page { return nil }
        }
        return nil
    }

    private enum Look {
        case found(Found)
        case other
        case taken
        case expired
    }

    @inline(__always)
    private func look(
        _ slot: HashIndex.Slot, _ first: SlotWord, _ hash: UInt64, _ key: UnsafeRawBufferPointer, _ isSame: (UnsafeRawBufferPointer) -> Bool
    ) -> (Look, SlotWord) {
        var word = first
        while true {
            let result = look(at: word, slot, hash, key, isSame)
            guard case .taken = result else { return (result, word) }
            // Taken, or moved while we looked?
            let now = SlotWord(bits: slot.pointee.load(ordering: .acquiring))
            guard now.place != word.place else { return (.taken, word) }
            guard !now.isEmpty, now.tag == word.tag else { return (.other, word) }
            word = now
        }
    }

    @inline(__always)
    private func look(
        at word: SlotWord, _ slot: HashIndex.Slot, _ hash: UInt64, _ key: UnsafeRawBufferPointer, _ isSame: (UnsafeRawBufferPointer) -> Bool
    ) -> Look {
        let record = table[word.segment]
        let generation = record.pointee.generation.load(ordering: .acquiring)
        let address = record.pointee.base.load(ordering: .acquiring)
        // The slot again: if it still names that place now, its item was published in a generation no later than this one, and numbers
        // are given anew only when no slot names them; so either they belong together or the pages' sentinels will say no.
        guard SlotWord(bits: slot.pointee.load(ordering: .acquiring)).place == word.place,
            generation != 0, let base = UnsafeMutableRawPointer(bitPattern: address)
        else { return .taken }
        let item = base + word.offset
        let sentinel = Segment.sentinel(base, word.offset)
        // The lines behind the header's are fetched along with it and with the sentinel's.
        plimsoll_prefetch(item + 64)
        plimsoll_prefetch(item + 128)
        guard sentinel.pointee.load(ordering: .acquiring) == generation else { return .taken }
        let header = ItemHeader(at: item)
        // Acquiring, here and below: what was loaded comes before the second look at the sentinel.
        atomicMemoryFence(ordering: .acquiring)
        guard sentinel.pointee.load(ordering: .relaxed) == generation else { return .taken }
        guard header.hash == hash else { return .other }
        // The header was good, so its lengths are. The key's bytes may still go, and would then equal none but zeros; `copy` looks again.
        let stored = UnsafeRawBufferPointer(start: item + header.keyStart, count: header.key)
        guard Self.equal(stored, key) || differs(stored, sentinel, generation, isSame) else {
            return sentinel.pointee.load(ordering: .relaxed) == generation ? .other : .taken
        }
        if header.hasExpiry {
            let expiry = item.load(fromByteOffset: ItemHeader.size, as: UInt64.self)
            atomicMemoryFence(ordering: .acquiring)
            guard sentinel.pointee.load(ordering: .relaxed) == generation else { return .taken }
            if expiry <= UInt64(max(0, time.elapsed().inNanoseconds)) { return .expired }
        }
        let start = header.value == 0 ? word.offset : PageLayout.advance(word.offset, header.prefix)
        // Whoever asked makes room for the value meanwhile.
        PageLayout.prefetch(base, start, header.value)
        return .found(Found(slot: slot, word: word, base: base, generation: generation, start: start, count: header.value))
    }

    @inline(__always)
    private static func equal(_ stored: UnsafeRawBufferPointer, _ key: UnsafeRawBufferPointer) -> Bool {
        guard stored.count == key.count else { return false }
        if key.count == 8 { return stored.loadUnaligned(as: UInt64.self) == key.loadUnaligned(as: UInt64.self) }
        for position in 0..<key.count where stored[position] != key[position] { return false }
        return true
    }

    /// Whether bytes that differ mean the same key. They are copied first: user code sees only bytes known to be good.
    private func differs(
        _ stored: UnsafeRawBufferPointer, _ sentinel: HashIndex.Slot, _ generation: UInt64, _ isSame: (UnsafeRawBufferPointer) -> Bool
    ) -> Bool {
        var copy = [UInt8](repeating: 0, count: stored.count)
        return copy.withUnsafeMutableBytes { copy in
            if let start = copy.baseAddress { plimsoll_copy_racing(start, stored.baseAddress, stored.count) }
            atomicMemoryFence(ordering: .acquiring)
            guard sentinel.pointee.load(ordering: .relaxed) == generation else { return false }
            return isSame(UnsafeRawBufferPointer(copy))
        }
    }

    /// Copies the item's value to `target`.
    ///
    /// - Returns: whether every byte was good. If not, the item was taken or moved: find it again.
    @usableFromInline
    func copy(_ found: Found, to target: UnsafeMutableRawPointer) -> Bool {
        PageLayout.copyOut(found.base, found.start, found.count, to: target)
        // Acquiring: the copies come before the looks at the sentinels. The item's first page is looked at as well: its key was compared there.
        atomicMemoryFence(ordering: .acquiring)
        var page = found.word.offset & ~PageLayout.mask
        let last = found.count == 0 ? page : PageLayout.advance(found.start, found.count - 1)
        while page <= last {
            guard Segment.sentinel(found.base, page).pointee.load(ordering: .relaxed) == found.generation else { return false }
            page += PageLayout.page
        }
        return true
    }

    /// Marks an item as asked for.
    @usableFromInline
    func noteHit(_ found: Found) {
        counters.count(.hit)
        let seen = SlotWord(bits: found.slot.pointee.load(ordering: .relaxed))
        // Three marks are all that counts: what is hot is not written to any more. A mark lost to a race is no harm.
        guard seen.uses < SlotWord.mostUses, seen.place == found.word.place else { return }
        _ = found.slot.pointee.weakCompareExchange(expected: seen.bits, desired: seen.bits + SlotWord.use, ordering: .relaxed)
    }

    @usableFromInline
    func noteMiss() { counters.count(.miss) }

    /// What is to be done about an item whose bytes were not good: look it up again if it was moved meanwhile, else it is lost.
    @usableFromInline
    func hasMoved(_ found: Found) -> Bool {
        if SlotWord(bits: found.slot.pointee.load(ordering: .acquiring)).place != found.word.place { return true }
        forget(found.slot, found.word)
        return false
    }

    // A reader does not wait for a writer: if the log is busy, somebody else will find out.
    private func forget(_ slot: HashIndex.Slot, _ word: SlotWord) {
        _ = log.withLockIfAvailable { log in
            guard SlotWord(bits: slot.pointee.load(ordering: .relaxed)).place == word.place else { return }
            if let segment = log.segments[word.segment], let header = segment.header(at: word.offset),
                segment.isThere(word.offset, count: header.count)
            {
                return
            }
            log.index.remove(slot)
            log.depart(word, log.averageCost(word.segment), nil, .droppedByKernel)
        }
    }

    private func expire(_ slot: HashIndex.Slot, _ word: SlotWord) {
        withLogIfFree { log in
            guard SlotWord(bits: slot.pointee.load(ordering: .relaxed)).place == word.place, let segment = log.segments[word.segment],
                let header = segment.header(at: word.offset)
            else { return }
            log.leave(slot, word, header, in: segment, .expired)
        }
    }
}

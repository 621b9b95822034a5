import CPlimsollMemory
import Synchronization

/// A store of bytes under keys that are bytes, in memory that the kernel may take. `VolatileCache` adds the types.
///
/// **Reading** takes no lock and writes nothing but the use count. The index gives the place of an item, and the bytes
/// are copied out. They were good if the sentinels of their pages are unchanged after that. **Writing** goes through
/// the log, under its lock. Address space stays mapped until the end, so a late reader reads zeros or another segment's
/// sentinel, never a hole.
@usableFromInline
final class VolatileStore: Sendable {
    let index: HashIndex
    private let table = SegmentTable()
    let log: Mutex<VolatileLog>
    let counters = CacheCounters()
    let learning = CurveLearning()
    /// Thousandths of a byte of memory for each byte of an item, as the log also holds dead items. Relaxed:
    /// a stale number changes a curve a little.
    let memoryPerMille = Atomic<Int>(1000)
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

    /// True in a forked child: there everything is empty and nothing can be inserted.
    var isForked: Bool { !ForkGuard.isProcess(process) }

    // MARK: Reading

    /// An item that was there a moment ago. The bytes are good if `copy` returns true.
    @usableFromInline
    struct Found {
        let slot: HashIndex.Slot
        let word: SlotWord
        let base: UnsafeMutableRawPointer
        let generation: UInt64
        let start: Int
        /// Bytes of the value.
        @usableFromInline let count: Int
    }

    /// Returns the item under a key; `nil` if there is none, or if the kernel took it.
    ///
    /// - Parameters:
    ///   - key: the bytes of the key, at most a page.
    ///   - isSame: returns true if different bytes are the same key; called for keys with the same hash.
    @usableFromInline
    func find(_ hash: UInt64, _ key: UnsafeRawBufferPointer, isSame: (UnsafeRawBufferPointer) -> Bool) -> Found? {
        let tag = SlotWord.tag(of: hash)
        while let page = index.page(of: hash) {
            var candidates = HashIndex.candidates(hash, tag, in: page)
            while let slot = candidates.next() {
                // Acquiring: pairs with the release that published the word, so the item's bytes are seen.
                let word = SlotWord(bits: slot.pointee.load(ordering: .acquiring))
                guard word.tag == tag, !word.isEmpty else { continue }
                switch probe(slot, word, hash, key, isSame) {
                case (.found(let found), _): return found
                case (.other, _): continue
                case (.taken, let word): forget(slot, word)
                case (.expired, let word): expire(slot, word)
                }
            }
            // Nothing found: check if the page was split meanwhile.
            atomicMemoryFence(ordering: .acquiring)
            if index.page(of: hash) == page { return nil }
        }
        return nil
    }

    private enum ProbeResult {
        case found(Found)
        case other
        case taken
        case expired
    }

    @inline(__always)
    private func probe(
        _ slot: HashIndex.Slot, _ first: SlotWord, _ hash: UInt64, _ key: UnsafeRawBufferPointer,
        _ isSame: (UnsafeRawBufferPointer) -> Bool
    ) -> (ProbeResult, SlotWord) {
        var word = first
        while true {
            let result = probe(at: word, slot, hash, key, isSame)
            guard case .taken = result else { return (result, word) }
            // Check if the item was taken, or moved meanwhile.
            let now = SlotWord(bits: slot.pointee.load(ordering: .acquiring))
            guard now.place != word.place else { return (.taken, word) }
            guard !now.isEmpty, now.tag == word.tag else { return (.other, word) }
            word = now
        }
    }

    @inline(__always)
    private func probe(
        at word: SlotWord, _ slot: HashIndex.Slot, _ hash: UInt64, _ key: UnsafeRawBufferPointer,
        _ isSame: (UnsafeRawBufferPointer) -> Bool
    ) -> ProbeResult {
        let record = table[word.segment]
        let generation = record.pointee.generation.load(ordering: .acquiring)
        let address = record.pointee.base.load(ordering: .acquiring)
        // Load the slot again. If the slot still names that place, the item was published in a generation no later than
        // this one. A number is reused only when no slot names it. So slot and generation belong together, or the
        // pages' sentinels will differ.
        guard SlotWord(bits: slot.pointee.load(ordering: .acquiring)).place == word.place,
            generation != 0, let base = UnsafeMutableRawPointer(bitPattern: address)
        else { return .taken }
        let item = base + word.offset
        let sentinel = Segment.sentinel(base, word.offset)
        // Fetch the lines behind the header along with those of the header and the sentinel.
        plimsoll_prefetch(item + 64)
        plimsoll_prefetch(item + 128)
        guard sentinel.pointee.load(ordering: .acquiring) == generation else { return .taken }
        let header = ItemHeader(at: item)
        // Acquiring, here and below: all loads above come before the second load of the sentinel.
        atomicMemoryFence(ordering: .acquiring)
        guard sentinel.pointee.load(ordering: .relaxed) == generation else { return .taken }
        guard header.hash == hash else { return .other }
        // The header was good, so its lengths are. The key's bytes may still go, and would then equal zeros only;
        // `copy` checks again.
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
        // Prefetch while the caller allocates memory for the value.
        PageLayout.prefetch(base, start, header.value)
        return .found(
            Found(slot: slot, word: word, base: base, generation: generation, start: start, count: header.value))
    }

    @inline(__always)
    private static func equal(_ stored: UnsafeRawBufferPointer, _ key: UnsafeRawBufferPointer) -> Bool {
        guard stored.count == key.count else { return false }
        if key.count == 8 { return stored.loadUnaligned(as: UInt64.self) == key.loadUnaligned(as: UInt64.self) }
        for position in 0..<key.count where stored[position] != key[position] { return false }
        return true
    }

    /// Returns true if different bytes mean the same key. Copies the bytes first: user code sees only bytes known to be
    /// good.
    private func differs(
        _ stored: UnsafeRawBufferPointer, _ sentinel: HashIndex.Slot, _ generation: UInt64,
        _ isSame: (UnsafeRawBufferPointer) -> Bool
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
    /// - Returns: true if every byte was good. If false, the item was taken or moved: repeat the look-up.
    @usableFromInline
    func copy(_ found: Found, to target: UnsafeMutableRawPointer) -> Bool {
        PageLayout.copyOut(found.base, found.start, found.count, to: target)
        // Acquiring: the copies come before the sentinel checks. The item's first page is checked as well: the key was
        // compared there.
        atomicMemoryFence(ordering: .acquiring)
        var page = found.word.offset & ~PageLayout.mask
        let last = found.count == 0 ? page : PageLayout.advance(found.start, found.count - 1)
        while page <= last {
            guard Segment.sentinel(found.base, page).pointee.load(ordering: .relaxed) == found.generation else {
                return false
            }
            page += PageLayout.page
        }
        return true
    }

    /// Marks an item as used.
    @usableFromInline
    func noteHit(_ found: Found, _ hash: UInt64) {
        counters.count(.hit)
        if isSampled(hash) { sample(hash, found) }
        let seen = SlotWord(bits: found.slot.pointee.load(ordering: .relaxed))
        // The count ends at three, so hot items are not written to any more. A mark lost to a race does no harm.
        guard seen.uses < SlotWord.mostUses, seen.place == found.word.place else { return }
        _ = found.slot.pointee.weakCompareExchange(
            expected: seen.bits, desired: seen.bits + SlotWord.use, ordering: .relaxed)
    }

    @usableFromInline
    func noteMiss(_ hash: UInt64) {
        counters.count(.miss)
        if isSampled(hash) { sample(hash, nil) }
    }

    /// Returns true if an item whose bytes were not good was moved meanwhile: repeat the look-up. If false, the item is
    /// lost.
    @usableFromInline
    func hasMoved(_ found: Found) -> Bool {
        if SlotWord(bits: found.slot.pointee.load(ordering: .acquiring)).place != found.word.place { return true }
        forget(found.slot, found.word)
        return false
    }

    // A reader does not wait for a writer: if the log is busy, another caller will find the loss.
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
            guard SlotWord(bits: slot.pointee.load(ordering: .relaxed)).place == word.place,
                let segment = log.segments[word.segment],
                let header = segment.header(at: word.offset),
                // A later item may have the place by now.
                log.hasExpired(segment, word.offset, header)
            else { return }
            log.leave(slot, word, header, in: segment, .expired)
        }
    }
}

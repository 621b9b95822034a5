import CPlimsollMemory
import Synchronization

/// Splitting of pages, doubling of directories, and allocation of both.
extension HashIndex {
    func split(_ page: Slot, _ hash: UInt64, _ hashOf: (SlotWord) -> UInt64?) -> Bool {
        guard var block = UnsafeMutablePointer<Atomic<UInt>>(bitPattern: directory.load(ordering: .relaxed)) else {
            return false
        }
        var depth = Int(block[0].load(ordering: .relaxed))
        var run = Self.run(of: page, hash, block, depth)
        if run.count == 1 {
            // A directory that outgrows its pages means hashes that are alike.
            guard depth < Self.deepest, 1 << depth <= pageCount * 16, let doubled = double(block, depth) else {
                return false
            }
            block = doubled
            depth += 1
            run = Self.run(of: page, hash, block, depth)
        }
        guard let new = takePage() else { return false }
        let bit = UInt64(1) << (63 - UInt64(depth - run.count.trailingZeroBitCount))
        for slot in 0..<Self.slots {
            let word = SlotWord(bits: page[slot].load(ordering: .relaxed))
            guard !word.isEmpty else { continue }
            guard let itsHash = hashOf(word) else {
                remove(page + slot)
                continue
            }
            if itsHash & bit != 0 { new[slot].store(word.bits, ordering: .relaxed) }
        }
        // Published before the old page loses the entries: a reader that misses one there finds the directory changed.
        for entry in run.start + run.count / 2..<run.start + run.count {
            block[1 + entry].store(UInt(bitPattern: new), ordering: .releasing)
        }
        for slot in 0..<Self.slots where new[slot].load(ordering: .relaxed) != 0 {
            page[slot].store(0, ordering: .releasing)
        }
        return true
    }

    /// Returns the aligned run of directory entries that name `page`.
    private static func run(of page: Slot, _ hash: UInt64, _ block: UnsafeMutablePointer<Atomic<UInt>>, _ depth: Int)
        -> (start: Int, count: Int)
    {
        let entry = Int(truncatingIfNeeded: (hash >> 1) &>> (63 &- UInt64(depth)))
        var count = 1
        while count < 1 << depth {
            let start = entry & ~(2 * count - 1)
            // The half that is not checked yet. If the first entry is another page, all entries are.
            let unknown = entry & count == 0 ? start + count : start
            guard block[1 + unknown].load(ordering: .relaxed) == UInt(bitPattern: page),
                block[unknown + count].load(ordering: .relaxed) == UInt(bitPattern: page)
            else { break }
            count *= 2
        }
        return (entry & ~(count - 1), count)
    }

    private func double(_ old: UnsafeMutablePointer<Atomic<UInt>>, _ depth: Int) -> UnsafeMutablePointer<Atomic<UInt>>?
    {
        let new = Self.makeDirectory(depth: depth + 1)
        for entry in 0..<1 << (depth + 1) {
            new[1 + entry].store(old[1 + entry / 2].load(ordering: .relaxed), ordering: .relaxed)
        }
        publish(new)
        return new
    }

    static func makeDirectory(depth: Int) -> UnsafeMutablePointer<Atomic<UInt>> {
        let words = 1 + 1 << depth
        let block = UnsafeMutablePointer<Atomic<UInt>>.allocate(capacity: words)
        for word in 0..<words { (block + word).initialize(to: Atomic(0)) }
        block[0].store(UInt(depth), ordering: .relaxed)
        return block
    }

    func publish(_ new: UnsafeMutablePointer<Atomic<UInt>>) {
        directories.append(new)
        directory.store(UInt(bitPattern: new), ordering: .releasing)
    }

    func takePage() -> Slot? {
        if arenas.last.map({ $0.used == $0.bytes }) ?? true {
            let huge = 2 << 20
            let bytes = min(huge, max(64 << 10, pageCount * Self.pageBytes))
            var start: UnsafeMutableRawPointer?
            guard plimsoll_map(bytes, bytes == huge ? huge : Self.pageBytes, &start) == 0, let start else { return nil }
            guard plimsoll_open(start, bytes) == 0 else {
                _ = plimsoll_unmap(start, bytes)
                return nil
            }
            // Look-ups in a large index touch random pages, so each would need a TLB entry of its own.
            if allowsHugePages, bytes == huge { _ = plimsoll_allow_huge_pages(start, bytes) }
            arenas.append((start, bytes, 0))
        }
        let last = arenas.count - 1
        let page = arenas[last].start + arenas[last].used
        arenas[last].used += Self.pageBytes
        pageCount += 1
        // Zeroed pages are atomics of zero: the layout of `Atomic<UInt64>` is its value's.
        return page.assumingMemoryBound(to: Atomic<UInt64>.self)
    }

    func pageAddress(_ number: Int) -> Slot {
        var left = number * Self.pageBytes
        for arena in arenas {
            if left < arena.used { return (arena.start + left).assumingMemoryBound(to: Atomic<UInt64>.self) }
            left -= arena.used
        }
        preconditionFailure("there is no page \(number) of \(pageCount)")
    }
}

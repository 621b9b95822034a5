import CPlimsollMemory
import Synchronization

/// Pages that are offered to the kernel and claimed back: what a `PurgeableBuffer` does under its lock.
///
/// While they are offered, one word of each is a mark, and what belongs there waits in a table behind the data. `MADV_FREE` lets the kernel
/// take an offered page at any instant, until it is written to (mm/madvise.c, `madvise_free_pte_range`; mm/rmap.c, `try_to_unmap_one`); a taken
/// page reads as zeros. Claiming puts each word back in place of its mark by one compare-exchange, which either finds the mark, and by
/// writing keeps the whole page, or does not, and the page has been taken: there is no instant in between.
// Unchecked: an address and constants. Whoever holds it makes one call at a time; only `isAlive` may be asked meanwhile.
struct VolatilePages: @unchecked Sendable {
    /// Where the data begins.
    let start: UnsafeMutableRawPointer
    /// Bytes mapped, in whole pages: the data, and the table behind it.
    let mappedBytes: Int

    private let pageSize: Int
    private let pageCount: Int
    private let isGuarded: Bool

    /// Anything but zero, which is what a taken page reads as.
    private static var mark: UInt64 { 0x506c_696d_736f_6c6c }
    /// Of the processors this runs on; where it is another size these are ordinary pages, and nothing else changes.
    private static var hugePage: Int { 2 << 20 }

    private typealias Word = Atomic<UInt64>

    /// Maps zeroed pages for `byteCount` bytes; `nil` if the kernel has none to map, or none that a forked child could not inherit (before Linux 4.14).
    ///
    /// - Parameters:
    ///   - usesHugePages: whether the kernel may use huge pages for data of 2 MiB and more, which makes offering and claiming cheaper.
    ///   - isGuarded: whether touching an offered page ends the process (`SIGSEGV`), at the price of two more system calls.
    init?(byteCount: Int, usesHugePages: Bool, isGuarded: Bool) {
        // More than any address space, and little enough for the sums below.
        guard byteCount >= 0, byteCount < 1 << 60 else { return nil }
        let page = plimsoll_page_size()
        let count = (byteCount + page - 1) / page
        // One word a page, after one that says whether there is anything at all.
        let table = ((count + 1) * MemoryLayout<Word>.stride + page - 1) / page * page
        let huge = usesHugePages ? count * page / Self.hugePage * Self.hugePage : 0
        let bytes = count * page + table
        var address: UnsafeMutableRawPointer?
        guard plimsoll_map(bytes, huge > 0 ? Self.hugePage : page, &address) == 0, let address else { return nil }
        guard plimsoll_open(address, bytes) == 0 else {
            _ = plimsoll_unmap(address, bytes)
            return nil
        }
        if huge > 0 { _ = plimsoll_allow_huge_pages(address, huge) }
        (start, mappedBytes, pageSize, pageCount, self.isGuarded) = (address, bytes, page, count, isGuarded)
        alive.pointee.store(1, ordering: .relaxed)
    }

    /// Bytes of the data, in whole pages.
    private var dataBytes: Int { pageSize * pageCount }

    /// False after `giveBack`, and in a forked child, for which the kernel wipes the word (`MADV_WIPEONFORK`).
    ///
    /// Asked without the lock, which in a child may be held for ever by a thread that stayed behind.
    // Relaxed: a no is for good, and after a yes the lock is taken.
    var isAlive: Bool { alive.pointee.load(ordering: .relaxed) != 0 }

    private var alive: UnsafeMutablePointer<Word> { (start + dataBytes).assumingMemoryBound(to: Word.self) }

    /// What belongs where the marks are.
    private var table: UnsafeMutablePointer<UInt64> { (start + dataBytes).assumingMemoryBound(to: UInt64.self) + 1 }

    /// The word of a page that bears its mark: on each page a cache line further, since the first words of all pages would contend for one set of
    /// every cache (claiming took an eighth longer). 64 lines of 64 bytes are the smallest page there is.
    private func word(_ index: Int) -> UnsafeMutablePointer<Word> { (start + index * pageSize + index % 64 * 64).assumingMemoryBound(to: Word.self) }

    // Orderings of the words: threads of this process come one after the other through a lock, so the only other party is the kernel, which
    // takes a page whole and for good. What was read of a page before a successful exchange was therefore good as well. Acquiring keeps what
    // follows behind the exchange nonetheless, at no cost next to that of the exchange itself.

    /// Lets the kernel take the pages from now on. Every page becomes resident that was not.
    ///
    /// - Returns: whether it may. Locked memory (`mlockall`) it refuses with `EINVAL`; the pages then are there until they are given back.
    /// - Complexity: O(pages): one load and two stores each, and a system call.
    func offer() -> Bool {
        let (table, mark) = (table, Self.mark)
        for index in 0..<pageCount {
            let word = word(index)
            table[index] = word.pointee.load(ordering: .relaxed)
            word.pointee.store(mark, ordering: .relaxed)
        }
        let isOffered = plimsoll_mark_volatile(start, dataBytes) == 0
        if isGuarded { _ = plimsoll_forbid(start, dataBytes) }
        return isOffered
    }

    /// Takes the pages back.
    ///
    /// - Returns: bytes that the kernel has taken; if any, the rest is worth nothing either and is to be given back.
    /// - Complexity: O(pages): one load and one compare-exchange each.
    func claim() -> Int {
        // Without access to them they might as well have been taken.
        if isGuarded, plimsoll_permit(start, dataBytes) != 0 { return dataBytes }
        let (table, mark) = (table, Self.mark)
        for index in 0..<pageCount {
            let word = word(index)
            // Looking first: an exchange faults in a fresh page in place of a taken one, page by page, just when there is no memory.
            guard word.pointee.load(ordering: .relaxed) != 0,
                word.pointee.compareExchange(
                    expected: mark, desired: table[index], successOrdering: .acquiring, failureOrdering: .relaxed
                ).exchanged
            else { return max(1, taken(from: index)) * pageSize }
        }
        return 0
    }

    /// Bytes that the kernel has taken of offered pages. Reading keeps none of them.
    func taken() -> Int {
        if isGuarded, plimsoll_permit(start, dataBytes) != 0 { return dataBytes }
        defer { if isGuarded { _ = plimsoll_forbid(start, dataBytes) } }
        return taken(from: 0) * pageSize
    }

    private func taken(from first: Int) -> Int {
        var count = 0
        for index in first..<pageCount where word(index).pointee.load(ordering: .relaxed) == 0 { count += 1 }
        return count
    }

    /// Gives all pages back for good.
    func giveBack() {
        alive.pointee.store(0, ordering: .relaxed)
        // Refused if the process has as many mappings, or locked pages, as it may. What stays then is nobody's until the mapping ends.
        if plimsoll_blank(start, mappedBytes) != 0, plimsoll_drop(start, mappedBytes) != 0 { _ = plimsoll_drop_locked(start, mappedBytes) }
        if isGuarded { _ = plimsoll_forbid(start, dataBytes) }
    }

    /// Ends the mapping; nothing may be asked of it any more.
    func unmap() { _ = plimsoll_unmap(start, mappedBytes) }

    /// Has the kernel take now what has been offered, as it would for want of memory; all pages unless told which. For tests.
    func reclaim(_ range: Range<Int>?) {
        let range = (range ?? 0..<pageCount).clamped(to: 0..<pageCount)
        _ = plimsoll_reclaim(start + range.lowerBound * pageSize, range.count * pageSize)
    }
}

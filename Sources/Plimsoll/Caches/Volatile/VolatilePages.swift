import CPlimsollMemory
import Synchronization

/// Pages that are offered to the kernel and claimed back. A `PurgeableBuffer` calls them under its lock.
///
/// While the pages are offered, one word of each is a mark; the original word waits in a table behind the data.
/// `MADV_FREE` lets the kernel take an offered page at any instant, until the page is written to (mm/madvise.c,
/// `madvise_free_pte_range`; mm/rmap.c, `try_to_unmap_one`). A taken page reads as zeros. Claiming exchanges each mark
/// for the original word with one compare-and-swap. If the swap finds the mark, that write keeps the whole page. If
/// not, the page has been taken. There is no instant in between.
// Unchecked: an address and constants. The owner makes one call at a time; only `isAlive` may be called concurrently.
struct VolatilePages: @unchecked Sendable {
    let start: UnsafeMutableRawPointer
    /// Bytes mapped, in whole pages: the data and the table behind the data.
    let mappedBytes: Int

    private let pageSize: Int
    private let pageCount: Int
    private let isGuarded: Bool

    /// The mark: any number but zero, because a taken page reads as zero.
    private static var mark: UInt64 { 0x506c_696d_736f_6c6c }
    /// Size of a huge page on the supported processors. On others these are ordinary pages, and nothing else changes.
    private static var hugePage: Int { 2 << 20 }

    private typealias Word = Atomic<UInt64>

    /// Maps zeroed pages for `byteCount` bytes. Returns `nil` if the kernel has none to map, or none that a forked
    /// child could not inherit (before Linux 4.14).
    ///
    /// - Parameters:
    ///   - usesHugePages: permission for the kernel to use huge pages for data of 2 MiB and more, which makes offering
    ///     and claiming cheaper.
    ///   - isGuarded: true to end the process (`SIGSEGV`) when an offered page is touched, at the price of two more
    ///     system calls.
    init?(byteCount: Int, usesHugePages: Bool, isGuarded: Bool) {
        // The bound exceeds any address space, and keeps the sums below from overflowing.
        guard byteCount >= 0, byteCount < 1 << 60 else { return nil }
        let page = plimsoll_page_size()
        let count = (byteCount + page - 1) / page
        // One word for each page, after one word that is the `isAlive` flag.
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
    /// Readable without the lock: in a child, a thread that does not exist there may hold the lock for ever.
    // Relaxed: false is final, and after true the caller takes the lock.
    var isAlive: Bool { alive.pointee.load(ordering: .relaxed) != 0 }

    private var alive: UnsafeMutablePointer<Word> { (start + dataBytes).assumingMemoryBound(to: Word.self) }

    /// The original words of the marked places.
    private var table: UnsafeMutablePointer<UInt64> { (start + dataBytes).assumingMemoryBound(to: UInt64.self) + 1 }

    /// Returns the word of a page that bears the mark. Each page uses the next cache line: the first words of all pages
    /// would contend for one set of every cache (claiming took an eighth longer). 64 lines of 64 bytes are the smallest
    /// page there is.
    private func word(_ index: Int) -> UnsafeMutablePointer<Word> {
        (start + index * pageSize + index % 64 * 64).assumingMemoryBound(to: Word.self)
    }

    // Orderings of the words: a lock serializes the threads of this process, so the only other party is the kernel,
    // which takes a page whole and for good. So everything read of a page before a successful exchange was good as
    // well. Acquiring nonetheless keeps later accesses behind the exchange, at no cost beside that of the exchange
    // itself.

    /// Lets the kernel take the pages from now on. Makes every page resident.
    ///
    /// - Returns: true if the kernel may take the pages. For locked memory (`mlockall`) the kernel refuses with
    ///   `EINVAL`; the pages then stay until `giveBack`.
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

    /// Claims the pages back.
    ///
    /// - Returns: bytes that the kernel has taken. If not zero, the other pages are worthless too, and the caller must
    ///   call `giveBack`.
    /// - Complexity: O(pages): one load and one compare-exchange each.
    func claim() -> Int {
        // Without access, the pages count as taken.
        if isGuarded, plimsoll_permit(start, dataBytes) != 0 { return dataBytes }
        let (table, mark) = (table, Self.mark)
        for index in 0..<pageCount {
            let word = word(index)
            // Load first: an exchange would fault in a fresh page for each taken one, just when there is no memory.
            guard word.pointee.load(ordering: .relaxed) != 0,
                word.pointee.compareExchange(
                    expected: mark, desired: table[index], successOrdering: .acquiring, failureOrdering: .relaxed
                ).exchanged
            else { return max(1, taken(from: index)) * pageSize }
        }
        return 0
    }

    /// Returns the bytes of offered pages that the kernel has taken. Reading does not keep a page.
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

    /// Releases all pages for good.
    func giveBack() {
        alive.pointee.store(0, ordering: .relaxed)
        // Refused at the process's limit of mappings or of locked pages. The remaining pages then stay unused until the
        // mapping ends.
        if plimsoll_blank(start, mappedBytes) != 0, plimsoll_drop(start, mappedBytes) != 0 {
            _ = plimsoll_drop_locked(start, mappedBytes)
        }
        if isGuarded { _ = plimsoll_forbid(start, dataBytes) }
    }

    /// Ends the mapping. Call no method afterwards.
    func unmap() { _ = plimsoll_unmap(start, mappedBytes) }

    /// Makes the kernel reclaim offered pages now, as under memory pressure; all pages unless a range is given. For
    /// tests.
    func reclaim(_ range: Range<Int>?) {
        let range = (range ?? 0..<pageCount).clamped(to: 0..<pageCount)
        _ = plimsoll_reclaim(start + range.lowerBound * pageSize, range.count * pageSize)
    }
}

import CPlimsollMemory
import Synchronization

/// Address space for segments, in blocks, taken from the kernel in growing extents and kept until the end.
///
/// Callers make the memory readable zeros (`plimsoll_blank`) before they return it. Such memory counts as nothing, and
/// a late reader reads zeros instead of crashing. Owned by one log; not thread-safe.
struct AddressSpace: ~Copyable {
    private struct Run {
        var start: UInt
        var bytes: Int
        var end: UInt { start + UInt(bytes) }
    }

    /// Granularity of sizes.
    static let block = max(16 << 10, plimsoll_page_size())
    private static let huge = 2 << 20
    private static let largestExtent = 256 << 20

    private var extents: [Run] = []
    /// Free runs in order of address; neighbours are merged.
    private var free: [Run] = []
    private var total = 0
    private var borrowed = 0

    deinit {
        for extent in extents { _ = plimsoll_unmap(UnsafeMutableRawPointer(bitPattern: extent.start), extent.bytes) }
    }

    /// Takes at least `bytes` of readable zeros, to be opened for writing. Sizes that are a multiple of a huge page are
    /// aligned to huge pages.
    ///
    /// - Returns: `nil` if the kernel gives no more address space (`RLIMIT_AS`, the number of mappings).
    mutating func take(_ bytes: Int) -> UnsafeMutableRawPointer? {
        let bytes = Self.rounded(bytes)
        guard let address = fit(bytes) ?? (extend(bytes) ? fit(bytes) : nil) else { return nil }
        borrowed += 1
        // There is at most one more free run than there are runs handed out. Reserve room for all, so that `give` allocates
        // nothing.
        if free.capacity < borrowed + extents.count + 1 { free.reserveCapacity((borrowed + extents.count) * 2 + 16) }
        return address
    }

    /// Returns to this pool what `take` returned for the same number of bytes.
    mutating func give(_ address: UnsafeMutableRawPointer, _ bytes: Int) {
        borrowed -= 1
        insert(Run(start: UInt(bitPattern: address), bytes: Self.rounded(bytes)))
    }

    static func rounded(_ bytes: Int) -> Int { (bytes + block - 1) / block * block }

    private mutating func fit(_ bytes: Int) -> UnsafeMutableRawPointer? {
        let alignment = UInt(bytes % Self.huge == 0 ? Self.huge : Self.block)
        for position in free.indices {
            let run = free[position]
            let start = (run.start + alignment - 1) / alignment * alignment
            guard start + UInt(bytes) <= run.end else { continue }
            remove(at: position)
            let after = Run(start: start + UInt(bytes), bytes: Int(run.end - start) - bytes)
            if after.bytes > 0 { insert(after, at: position) }
            if start > run.start { insert(Run(start: run.start, bytes: Int(start - run.start)), at: position) }
            return UnsafeMutableRawPointer(bitPattern: start)
        }
        return nil
    }

    private mutating func extend(_ bytes: Int) -> Bool {
        // Take an eighth of the total, so that the number of extents stays small; only what is needed if that is
        // refused.
        let generous = min(max(bytes, total / 8 / Self.huge * Self.huge), max(bytes, Self.largestExtent))
        for size in generous > bytes ? [generous, bytes] : [bytes] {
            var address: UnsafeMutableRawPointer?
            guard plimsoll_map(size, size >= Self.huge ? Self.huge : Self.block, &address) == 0, let address else {
                continue
            }
            let run = Run(start: UInt(bitPattern: address), bytes: size)
            extents.append(run)
            total += size
            insert(run)
            return true
        }
        return false
    }

    private mutating func insert(_ run: Run) {
        var run = run
        var (low, high) = (0, free.count)
        while low < high {
            let middle = (low + high) / 2
            if free[middle].start < run.start { low = middle + 1 } else { high = middle }
        }
        // Adjoining extents may merge as well: nothing is unmapped before the end.
        if low < free.count, run.end == free[low].start {
            run.bytes += free[low].bytes
            remove(at: low)
        }
        if low > 0, free[low - 1].end == run.start {
            free[low - 1].bytes += run.bytes
        } else {
            insert(run, at: low)
        }
    }

    // By hand: the array's own calls allocate where they are not specialized.
    private mutating func insert(_ run: Run, at place: Int) {
        free.append(run)
        var position = free.count - 1
        while position > place {
            free[position] = free[position - 1]
            position -= 1
        }
        free[place] = run
    }

    private mutating func remove(at place: Int) {
        var position = place
        while position + 1 < free.count {
            free[position] = free[position + 1]
            position += 1
        }
        free.removeLast()
    }
}

/// Tells whether this is still the process in which an object was made.
///
/// A page that a forked child sees as zeros (`MADV_WIPEONFORK`, Linux 4.14) holds a number. An object remembers the
/// number and compares.
package enum ForkGuard {
    // Unchecked by the compiler, but set once before any thread reads the pointer, and atomic behind the pointer.
    nonisolated(unsafe) private static let page: UnsafeMutablePointer<Atomic<UInt64>>? = {
        var start: UnsafeMutableRawPointer?
        let bytes = plimsoll_page_size()
        guard plimsoll_map(bytes, bytes, &start) == 0, let start, plimsoll_open(start, bytes) == 0 else { return nil }
        return start.assumingMemoryBound(to: Atomic<UInt64>.self)
    }()

    /// The number of this process. Relaxed, as below: the number publishes nothing else.
    package static var process: UInt64 {
        guard let page else { return 1 }
        let number = page.pointee.load(ordering: .relaxed)
        if number != 0 { return number }
        // A random number, because process ids are used again.
        let (exchanged, original) = page.pointee.compareExchange(
            expected: 0, desired: UInt64.random(in: 1...(.max)), ordering: .relaxed)
        return exchanged ? page.pointee.load(ordering: .relaxed) : original
    }

    /// Returns true if this is the process with that number.
    package static func isProcess(_ number: UInt64) -> Bool {
        page.map { $0.pointee.load(ordering: .relaxed) == number } ?? true
    }
}

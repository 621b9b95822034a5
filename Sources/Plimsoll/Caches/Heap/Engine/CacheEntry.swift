import CPlimsollMemory
public import Synchronization

/// An entry on its way out of the lock, so that key and value are released after the lock (T2).
@usableFromInline
struct CacheEntry<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    @usableFromInline var key: Key
    @usableFromInline var value: Value
    @usableFromInline var cost: Int
    @usableFromInline var reason: RemovalReason
    /// Deadlines in nanoseconds of the cache's time; `.max` for never.
    @usableFromInline var deadlines: (expires: Int64, idles: Int64)

    @inlinable
    init(
        key: consuming Key, value: consuming Value, cost: Int, reason: RemovalReason,
        deadlines: (expires: Int64, idles: Int64)
    ) {
        (self.key, self.value, self.cost, self.reason, self.deadlines) = (key, value, cost, reason, deadlines)
    }
}

/// Entries taken out under a lock and released after the lock. Used by one thread at a time.
///
/// Plain memory instead of an array: unspecialized generic code allocates when it looks up an array's conformances.
// Unchecked: one thread at a time uses a batch, having created it or taken it out of the cache's mutex until the
// work is done.
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

    func forEach(_ body: (borrowing Entry) -> Void) {
        var position = 0
        while position < count {
            body(entries[position])
            position += 1
        }
    }

    /// Calls `body` with each entry, and removes the entry.
    func drain(_ body: (borrowing Entry) -> Void) {
        var position = 0
        while position < count {
            body((entries + position).move())
            position += 1
        }
        count = 0
    }
}

/// Memory of an index or of slots, initially zero, at an address that stays valid until freed.
///
/// Larger allocations have pages of their own. The kernel can get the pages back while the address stays mapped; late
/// readers find zeros there.
// Unchecked: memory that its user guards.
struct CacheAllocation: @unchecked Sendable {
    let base: UnsafeMutableRawPointer
    let byteCount: Int
    private let isMapped: Bool

    /// Size in bytes from which an allocation has pages of its own: smaller ones would lose too much to rounding.
    static var leastMapped: Int { 32 << 10 }
    /// The same threshold for memory that must stay readable after use: pages can be released to the kernel, and
    /// the heap's memory cannot.
    static var leastMappedForReaders: Int { 8 << 10 }

    /// Allocates memory, aligned to a cache line.
    init(_ count: Int, leastMapped: Int = leastMapped) {
        if count >= leastMapped {
            let page = plimsoll_page_size()
            let rounded = (count + page - 1) & ~(page - 1)
            var address: UnsafeMutableRawPointer?
            if plimsoll_map(rounded, page, &address) == 0, let address, plimsoll_permit(address, rounded) == 0 {
                (base, byteCount, isMapped) = (address, rounded, true)
                return
            }
        }
        (byteCount, isMapped) = (count, false)
        base = .allocate(byteCount: count, alignment: 64)
        base.initializeMemory(as: UInt8.self, repeating: 0, count: count)
    }

    func free() {
        guard isMapped else { return base.deallocate() }
        // In small steps: while the kernel takes pages back, any thread that maps memory or needs more for the heap
        // waits.
        for start in stride(from: 0, to: byteCount, by: Self.step) {
            _ = plimsoll_drop(base + start, min(Self.step, byteCount - start))
        }
        _ = plimsoll_unmap(base, byteCount)
    }

    private static let step = 64 << 10

    /// Releases the whole pages between two offsets to the kernel. The pages are zero afterwards.
    ///
    /// - Returns: the bytes released, resident or not.
    func giveBack(_ start: Int, to end: Int) -> Int {
        let page = plimsoll_page_size()
        let first = (start + page - 1) & ~(page - 1), last = end & ~(page - 1)
        guard isMapped, first < last, plimsoll_drop(base + first, last - first) == 0 else { return 0 }
        return last - first
    }
}

/// Detached memory of a shard: blocks and slots, with the entries in them.
struct TableRemains: Sendable {
    /// `nil` if lock-free readers may still be in the slots; their contents need no destruction then.
    var slots: SlotBlock.Detached?
    var others: ContiguousArray<CacheAllocation> = []
}

/// Detached memory of a shard with typed keys and values.
// Unchecked: the value has exactly one owner.
struct DetachedTables<Key: Hashable & Sendable, Value: Sendable>: @unchecked Sendable {
    private let table: TableRemains
    private let cost: Int

    init(_ table: TableRemains, cost: Int) { (self.table, self.cost) = (table, cost) }

    /// Number of entries above which a separate thread destroys them: some 150 ns each, as they lie all over memory
    /// (measured).
    private static var mostHere: Int { 1000 }

    /// Destroys keys and values, here or, if there are many, on a separate thread. Then frees their memory and
    /// releases their charge.
    static func end(_ remains: [DetachedTables], count: Int, meter: ChargeMeter?) {
        if count > mostHere, Thread.start("plimsoll-free", { for part in remains { part.end(meter) } }) { return }
        for part in remains { part.end(meter) }
    }

    private func end(_ meter: ChargeMeter?) {
        table.slots?.end { SlotLayout<Key, Value>.destroy($0) }
        for allocation in table.others { allocation.free() }
        meter?.give(cost)
    }
}

/// Word-by-word copies of trivial values that another thread may be overwriting, with relaxed atomics on both
/// sides. A copy may be torn, but the read is defined. Readers check the shard's sequence before they use the copy
/// (H.-J. Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012).
@usableFromInline
enum AtomicCopy {
    /// Reads a trivial value from memory that may be written meanwhile. The result may be torn; validate the
    /// sequence before using the value.
    @inlinable @inline(__always)
    static func read<Element>(_ type: Element.Type, from source: UnsafeMutableRawPointer) -> Element {
        // Resolved when specialized. A one-word value needs no stack space, and no stack check that compilers add
        // to functions with such space.
        if MemoryLayout<Element>.size == 8, MemoryLayout<Element>.alignment == 8 {
            return unsafeBitCast(atomic(UInt64.self, source).pointee.load(ordering: .relaxed), to: type)
        }
        return withUnsafeTemporaryAllocation(of: type, capacity: 1) { room in
            let copy = room.baseAddress.unsafelyUnwrapped
            read(
                MemoryLayout<Element>.size, MemoryLayout<Element>.alignment, from: source,
                to: UnsafeMutableRawPointer(copy))
            return copy.pointee
        }
    }

    /// Copies `size` bytes out of memory that may be written meanwhile.
    @inlinable @inline(__always)
    static func read(
        _ size: Int, _ alignment: Int, from source: UnsafeMutableRawPointer, to target: UnsafeMutableRawPointer
    ) {
        // Size and alignment are constants when specialized, so that a word is one move.
        var offset = 0
        if alignment >= 8 {
            while offset &+ 8 <= size {
                target.storeBytes(
                    of: atomic(UInt64.self, source + offset).pointee.load(ordering: .relaxed), toByteOffset: offset,
                    as: UInt64.self)
                offset &+= 8
            }
        }
        if alignment >= 4 {
            while offset &+ 4 <= size {
                target.storeBytes(
                    of: atomic(UInt32.self, source + offset).pointee.load(ordering: .relaxed), toByteOffset: offset,
                    as: UInt32.self)
                offset &+= 4
            }
        }
        while offset < size {
            target.storeBytes(
                of: atomic(UInt8.self, source + offset).pointee.load(ordering: .relaxed), toByteOffset: offset,
                as: UInt8.self)
            offset &+= 1
        }
    }

    /// Copies `size` bytes into memory that may be read meanwhile.
    @inlinable @inline(__always)
    static func write(_ size: Int, _ alignment: Int, from source: UnsafeRawPointer, to target: UnsafeMutableRawPointer)
    {
        var offset = 0
        if alignment >= 8 {
            while offset &+ 8 <= size {
                atomic(UInt64.self, target + offset).pointee.store(
                    source.loadUnaligned(fromByteOffset: offset, as: UInt64.self), ordering: .relaxed)
                offset &+= 8
            }
        }
        if alignment >= 4 {
            while offset &+ 4 <= size {
                atomic(UInt32.self, target + offset).pointee.store(
                    source.loadUnaligned(fromByteOffset: offset, as: UInt32.self), ordering: .relaxed)
                offset &+= 4
            }
        }
        while offset < size {
            atomic(UInt8.self, target + offset).pointee.store(
                source.loadUnaligned(fromByteOffset: offset, as: UInt8.self), ordering: .relaxed)
            offset &+= 1
        }
    }

    @inlinable @inline(__always)
    static func atomic<Word: AtomicRepresentable>(_ type: Word.Type, _ address: UnsafeMutableRawPointer)
        -> UnsafeMutablePointer<Atomic<Word>>
    {
        // An atomic has the layout of its word.
        address.assumingMemoryBound(to: Atomic<Word>.self)
    }
}

public import CPlimsollMemory
import CPlimsollProcess
public import Synchronization

/// Reader slot of a thread, for all caches: a word that names the shard being read without the lock, and a counter
/// stripe.
///
/// A shard that is only read is read without its lock (after Dice and Kogan, "BRAVO: Biased locking for
/// reader-writer locks", USENIX ATC 2019). A thread writes the shard into its reader slot, checks that the shard is
/// open, reads, and clears the word. A writer closes the shard and waits until no reader slot names the shard.
/// The reader's order, store before check, needs no fence: the writer makes up for that with a barrier in all
/// threads (membarrier(2)).
@frozen @usableFromInline
struct ReaderSlot {
    @usableFromInline let base: UnsafeMutableRawPointer

    @inlinable @inline(__always)
    init(base: UnsafeMutableRawPointer) { self.base = base }

    /// The reader slot of the calling thread; `nil` before the thread has one.
    @inlinable @inline(__always)
    static var current: ReaderSlot? { plimsoll_reader_slot().map { ReaderSlot(base: $0) } }

    /// The shard that the thread is reading, or `idle`. 0 in an unowned reader slot: never taken, left, or wiped in
    /// a forked child.
    @inlinable @inline(__always)
    var activeShard: UnsafeMutablePointer<Atomic<UInt>> { AtomicCopy.atomic(UInt.self, base) }

    @inlinable @inline(__always)
    static var idle: UInt { 1 }

    /// Offset in bytes from a cache's counters to the thread's own stripe; negative if there is none, 0 in an
    /// unowned reader slot.
    @inlinable @inline(__always)
    var stripe: UnsafeMutablePointer<Atomic<Int>> { AtomicCopy.atomic(Int.self, base + 8) }

    /// Enters `shard`. Returns true if the thread may read the shard's contents until `leave`.
    @inlinable @inline(__always)
    func enter(_ shard: CacheShard) -> Bool {
        // A key's `==` may look into another cache, and a thread cannot be in two shards.
        guard activeShard.pointee.load(ordering: .relaxed) == Self.idle else { return false }
        // Released: a writer that waits for this thread to leave another shard may see this store instead of the
        // leaving.
        activeShard.pointee.store(UInt(bitPattern: shard.base), ordering: .releasing)
        plimsoll_compiler_barrier()
        // Acquires all writes before the shard opened. If this load misses a writer's closing, the writer sees this
        // thread's word after its barrier.
        if shard.openness.pointee.load(ordering: .acquiring) == CacheShard.open { return true }
        leave()
        return false
    }

    @inlinable @inline(__always)
    func leave() {
        // Released with this thread's reads, including the retain of the returned value. The barrier is opaque to
        // the optimizer, which could move the retain.
        plimsoll_compiler_barrier()
        activeShard.pointee.store(Self.idle, ordering: .releasing)
    }
}

/// The reader slots of all threads.
@usableFromInline
enum ReaderSlots {
    /// Number of reader slots. Threads beyond that share one that is always taken, so they take locks.
    private static var capacity: Int { 1023 }
    /// Bytes of a reader slot: processors fetch cache lines in pairs.
    private static var slotBytes: Int { 128 }

    /// Number of stripes that threads own alone; threads beyond that count on shared stripes.
    static let stripes = min(64, max(4, 2 * Int(plimsoll_processor_count())))

    // Unchecked by the compiler, but set once before any read, and atomic from then on. A forked child, in which no
    // thread reads, finds zeros.
    nonisolated(unsafe) private static let memory: UnsafeMutableRawPointer? = {
        let page = plimsoll_page_size(), bytes = ((capacity + 1) * slotBytes + page - 1) / page * page
        var start: UnsafeMutableRawPointer?
        guard plimsoll_prepare_barrier() == 0, plimsoll_map(bytes, page, &start) == 0, let start else { return nil }
        guard plimsoll_open(start, bytes) == 0 else {
            plimsoll_unmap(start, bytes)
            return nil
        }
        return start
    }()

    /// Number of reader slots that have ever been taken.
    private static let used = Atomic(0)

    /// True if there are reader slots: the kernel supports barriers and wipes memory of forked children (Linux
    /// 4.14).
    static var areThere: Bool { memory != nil }

    private static func reader(_ number: Int, _ memory: UnsafeMutableRawPointer) -> ReaderSlot {
        ReaderSlot(base: memory + number * slotBytes)
    }

    /// Gives the calling thread a reader slot if it has none.
    @usableFromInline
    static func take() {
        if let reader = ReaderSlot.current, reader.stripe.pointee.load(ordering: .relaxed) != 0 { return }
        guard let memory else { return }
        for number in 0..<capacity {
            let reader = reader(number, memory), stripe = number < stripes ? CacheCounters.stripe(number) : -1
            // Acquires the counts of the previous owner.
            guard reader.stripe.pointee.compareExchange(expected: 0, desired: stripe, ordering: .acquiring).exchanged
            else {
                continue
            }
            reader.activeShard.pointee.store(ReaderSlot.idle, ordering: .relaxed)
            // A writer sees this and our first word, or this thread sees its closing: see `ReaderSlot.enter`.
            used.max(number + 1, ordering: .sequentiallyConsistent)
            // Without a hook for the thread's end, the thread continues without a reader slot.
            if plimsoll_take_reader_slot(reader.base, { ReaderSlots.leave($0) }) != 0 { leave(reader.base) }
            return
        }
        // No thread that shares this reader slot ever finds it idle.
        let last = reader(capacity, memory)
        last.stripe.pointee.store(-1, ordering: .relaxed)
        _ = plimsoll_take_reader_slot(last.base) { ReaderSlots.leave($0) }
    }

    private static func leave(_ base: UnsafeMutableRawPointer?) {
        guard let base, let memory, base != reader(capacity, memory).base else { return }
        let reader = ReaderSlot(base: base)
        reader.endBorrowing()
        reader.activeShard.pointee.store(0, ordering: .relaxed)
        reader.stripe.pointee.store(0, ordering: .releasing)
    }

    /// Returns a number that tells closings apart, distinct from the numbers of an open and of a closed shard.
    static func ticket() -> UInt { tickets.add(1, ordering: .relaxed).newValue }
    // Relaxed: a number that orders nothing.
    private static let tickets = Atomic<UInt>(CacheShard.open)

    /// True if the kernel has begun to refuse barriers.
    private static let areBarriersRefused = Atomic(false)

    /// True if shards may open. False once barriers are refused: closing would be slow, so look-ups take locks from
    /// then on.
    // Relaxed: a shard that opens all the same is closed as any other, at the slow price.
    @usableFromInline
    static var mayOpen: Bool { !areBarriersRefused.load(ordering: .relaxed) }

    /// Makes every running thread pass a full barrier.
    static func barrier() {
        if plimsoll_barrier() == 0 { return }
        // A forked child has to register for barriers again.
        if plimsoll_prepare_barrier() == 0, plimsoll_barrier() == 0 { return }
        // Failed for lack of memory: the barrier of all processes needs none.
        if plimsoll_slow_barrier() == 0 { return }
        // Refused for good, as by a seccomp filter installed late. Shards that are still open are closed by
        // waiting, once for each. A store reaches the other processors in microseconds at most, with or without
        // barriers (Morrison and Afek, "Temporally bounding TSO for fence-free asymmetric synchronization", ASPLOS
        // 2015). A thread that has been preempted has passed a barrier.
        areBarriersRefused.store(true, ordering: .relaxed)
        plimsoll_nap(10_000_000)
    }

    /// Waits until no thread reads the closed shards.
    ///
    /// - Parameter isClosed: returns true for the address of a closed shard.
    /// - Returns: true if some thread has borrowed out of one of them.
    static func awaitLeaving(_ isClosed: (UInt) -> Bool) -> Bool {
        guard let memory else { return false }
        barrier()
        var isAnyBorrowed = false
        for number in 0..<used.load(ordering: .acquiring) {
            let reader = reader(number, memory)
            var attempts = 0
            // Acquires the thread's reads, which are over then.
            while isClosed(reader.activeShard.pointee.load(ordering: .acquiring)) {
                precondition(reader.base != plimsoll_reader_slot(), "a key's `==` has used the cache that called it")
                attempts += 1
                // A matter of nanoseconds, unless the reader has been preempted.
                if attempts > 100 { plimsoll_nap(50_000) }
            }
            // A thread declares its borrow before leaving.
            let borrowedFrom = reader.borrowedFrom.pointee.load(ordering: .acquiring)
            if borrowedFrom != 0, isClosed(borrowedFrom) { isAnyBorrowed = true }
        }
        return isAnyBorrowed
    }

    /// Calls `body` with the reader slot of each thread that has borrowed out of `shard`, which is closed and
    /// locked.
    static func forEachBorrower(of shard: CacheShard, _ body: (ReaderSlot) -> Void) {
        guard let memory else { return }
        for number in 0..<used.load(ordering: .acquiring) {
            let reader = reader(number, memory)
            // Acquires the value's address, or all that the thread has read of the value before.
            if reader.borrowedFrom.pointee.load(ordering: .acquiring) == UInt(bitPattern: shard.base) { body(reader) }
        }
    }
}

/// Hazard pointers: a thread may go on using a value after leaving the shard that keeps the value, without a
/// reference of its own (M. Michael, TPDS 2004). The thread declares the borrow in its reader slot. A writer that
/// closes the shard gives the thread a reference, so that neither waits for the other.
///
/// The reader slot holds the bits of the borrowed value meanwhile. A forked child finds zeros there: see
/// `PurgeableCache.withValue`.
extension ReaderSlot {
    /// The shard out of which the thread has borrowed; 0 for none.
    @inlinable @inline(__always)
    var borrowedFrom: UnsafeMutablePointer<Atomic<UInt>> { AtomicCopy.atomic(UInt.self, base + 16) }
    /// Address of the borrowed value in the shard.
    @inlinable @inline(__always)
    var borrowed: UnsafeMutablePointer<Atomic<UInt>> { AtomicCopy.atomic(UInt.self, base + 24) }
    /// Address of a value to which the thread has been given a reference; 0 for none.
    @inlinable @inline(__always)
    var given: UnsafeMutablePointer<Atomic<UInt>> { AtomicCopy.atomic(UInt.self, base + 32) }

    @inlinable @inline(__always)
    static var roomSize: Int { 80 }
    /// The bits of the borrowed value.
    @inlinable @inline(__always)
    func room<Value>(_ type: Value.Type) -> UnsafeMutablePointer<Value> { (base + 48).assumingMemoryBound(to: type) }

    /// Borrows `value`, kept by `shard`, which the thread is reading, and leaves the shard.
    @inlinable @inline(__always)
    func borrow<Value>(_ value: UnsafeMutablePointer<Value>, of shard: CacheShard) {
        UnsafeMutableRawPointer(room(Value.self)).copyMemory(from: value, byteCount: MemoryLayout<Value>.size)
        // Released: a thread that sees this address also sees that the previous borrow has ended.
        borrowed.pointee.store(UInt(bitPattern: value), ordering: .releasing)
        // Released with the value's address. A writer that waits for this thread to leave sees the store, because
        // leaving comes later.
        borrowedFrom.pointee.store(UInt(bitPattern: shard.base), ordering: .releasing)
        leave()
    }

    /// Ends borrowing `value`.
    @inlinable @inline(__always)
    func giveBack<Value>(_ value: UnsafeMutablePointer<Value>) {
        // No action of the borrower on the value, such as retaining it, may move below this point.
        plimsoll_compiler_barrier()
        borrowedFrom.pointee.store(0, ordering: .releasing)
        plimsoll_compiler_barrier()
        #if DEBUG
        LendingPoint.ended.pass()
        #endif
        // If this load misses a given reference, the giver sees after its barrier that the gift came too late.
        if given.pointee.load(ordering: .relaxed) == UInt(bitPattern: value) { dropGiven(value) }
    }

    @usableFromInline @inline(never)
    func dropGiven<Value>(_ value: UnsafeMutablePointer<Value>) {
        #if DEBUG
        LendingPoint.seen.pass()
        #endif
        // Take the reference first. A giver that came too late may have taken back the reference, and the bits may
        // be of a dead value.
        guard takeGiven(UInt(bitPattern: value)) else { return }
        // Move the value out of the reader slot before destroying it: the value's destruction may itself borrow.
        let own = room(Value.self).move()
        withExtendedLifetime(own) {}
    }

    /// Clears the borrow of a thread that ends inside a borrow, so that no giver waits for that reader slot. A
    /// reference given to the thread then leaks, like all else that the thread held.
    func endBorrowing() {
        // Without a borrow, a given reference came too late, and its giver is about to take it back.
        guard borrowedFrom.pointee.load(ordering: .relaxed) != 0 else { return }
        borrowedFrom.pointee.store(0, ordering: .releasing)
        plimsoll_compiler_barrier()
        // A later giver sees, after its barrier, that the gift came too late, and takes the reference back.
        given.pointee.store(0, ordering: .relaxed)
    }

    /// Takes the given reference. Returns true if the reference was still there.
    func takeGiven(_ value: UInt) -> Bool {
        given.pointee.compareExchange(expected: value, desired: 0, ordering: .acquiring).exchanged
    }
}

#if DEBUG
/// Steps of borrowing between which another thread may act. Tests stop a thread there. Release builds contain
/// neither the steps nor the check.
@usableFromInline
enum LendingPoint: Sendable {
    /// The borrower has cleared its hazard pointer, and has not checked for a given reference yet.
    case ended
    /// The borrower has seen a given reference, and has not taken the reference yet.
    case seen
    /// The writer has retained the value for the borrower, and has not given the reference yet.
    case retained
    /// The writer has given the reference, and has not checked yet if that was too late.
    case given

    private static let isWatched = Atomic(false)
    /// A struct: in a generic type such as `Mutex`, each access wraps a bare closure once more.
    private struct Watcher { var body: (@Sendable (LendingPoint) -> Void)? }
    private static let watcher = Mutex(Watcher())

    /// Registers `body`, which every thread calls when passing a step. `body` may take long.
    static func watch(_ body: @escaping @Sendable (LendingPoint) -> Void) {
        watcher.withLock { $0.body = body }
        isWatched.store(true, ordering: .releasing)
    }

    @usableFromInline @inline(never)
    func pass() {
        guard Self.isWatched.load(ordering: .acquiring) else { return }
        Self.watcher.withLock { $0.body }?(self)
    }
}
#endif

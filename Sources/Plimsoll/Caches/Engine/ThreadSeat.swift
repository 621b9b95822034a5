public import CPlimsollMemory
import CPlimsollProcess
public import Synchronization

/// What a thread has to itself in all caches: a word that says which shard it is reading without the lock, and a lane to count on.
///
/// A shard that is only read is read without its lock (after Dice and Kogan, "BRAVO: Biased locking for reader-writer locks", USENIX ATC 2019): a thread writes the shard
/// into its seat, looks whether the shard is open, reads, and takes its word back. Who wants to write closes the shard and waits until no seat names it.
/// The reader's order, its word before its look, costs nothing: the writer makes up for it with a barrier in all threads (membarrier(2)).
@frozen @usableFromInline
struct ThreadSeat {
    @usableFromInline let base: UnsafeMutableRawPointer

    @inlinable @inline(__always)
    init(base: UnsafeMutableRawPointer) { self.base = base }

    /// The calling thread's; `nil` before it has been given one.
    @inlinable @inline(__always)
    static var current: ThreadSeat? { plimsoll_seat().map { ThreadSeat(base: $0) } }

    /// The shard that its thread is reading, or `idle`; 0 in a seat that is nobody's: never taken, left, or wiped in a forked child.
    @inlinable @inline(__always)
    var visited: UnsafeMutablePointer<Atomic<UInt>> { CacheWords.atomic(UInt.self, base) }

    @inlinable @inline(__always)
    static var idle: UInt { 1 }

    /// Bytes from a cache's counters to the lane that is the thread's own; negative if it has none, 0 in a seat that is nobody's.
    @inlinable @inline(__always)
    var lane: UnsafeMutablePointer<Atomic<Int>> { CacheWords.atomic(Int.self, base + 8) }

    /// Whether the thread may read what is in `shard`, until it leaves.
    @inlinable @inline(__always)
    func enter(_ shard: CacheShard) -> Bool {
        // A key's `==` may look into another cache, and nobody is in two shards.
        guard visited.pointee.load(ordering: .relaxed) == Self.idle else { return false }
        // Released: who waits for us to leave another shard may see this instead of that we left.
        visited.pointee.store(UInt(bitPattern: shard.base), ordering: .releasing)
        plimsoll_compiler_barrier()
        // Acquired with all that was written before it opened. A writer whose closing this misses sees our word after its barrier.
        if shard.openness.pointee.load(ordering: .acquiring) == CacheShard.open { return true }
        leave()
        return false
    }

    @inlinable @inline(__always)
    func leave() {
        // Released with our reads, the count of references to what we return among them: what is called here is opaque to who might move that.
        plimsoll_compiler_barrier()
        visited.pointee.store(Self.idle, ordering: .releasing)
    }
}

/// The seats of all threads.
@usableFromInline
enum ThreadSeats {
    /// Threads beyond that share one that is always taken: they take locks.
    private static var capacity: Int { 1023 }
    /// Processors fetch lines in pairs.
    private static var seatBytes: Int { 128 }

    /// Lanes that threads have to themselves; threads beyond that count on shared ones.
    static let lanes = min(64, max(4, 2 * Int(plimsoll_processor_count())))

    // Unchecked by the compiler, but set once before anybody reads it and atomic behind it. A forked child, in which nobody reads, finds zeros.
    nonisolated(unsafe) private static let memory: UnsafeMutableRawPointer? = {
        let page = plimsoll_page_size(), bytes = ((capacity + 1) * seatBytes + page - 1) / page * page
        var start: UnsafeMutableRawPointer?
        guard plimsoll_prepare_barrier() == 0, plimsoll_map(bytes, page, &start) == 0, let start else { return nil }
        guard plimsoll_open(start, bytes) == 0 else {
            plimsoll_unmap(start, bytes)
            return nil
        }
        return start
    }()

    /// As many as have ever been taken.
    private static let used = Atomic(0)

    /// Whether there are any: the kernel knows barriers and wipes memory of forked children (Linux 4.14).
    static var areThere: Bool { memory != nil }

    private static func seat(_ number: Int, _ memory: UnsafeMutableRawPointer) -> ThreadSeat { ThreadSeat(base: memory + number * seatBytes) }

    /// Gives the calling thread a seat if it has none.
    @usableFromInline
    static func take() {
        if let seat = ThreadSeat.current, seat.lane.pointee.load(ordering: .relaxed) != 0 { return }
        guard let memory else { return }
        for number in 0..<capacity {
            let seat = seat(number, memory), lane = number < lanes ? CacheCounters.lane(number) : -1
            // Acquired with the counts of who left it.
            guard seat.lane.pointee.compareExchange(expected: 0, desired: lane, ordering: .acquiring).exchanged else { continue }
            seat.visited.pointee.store(ThreadSeat.idle, ordering: .relaxed)
            // Seen by a writer that sees our first word, or we see its closing: see `ThreadSeat.enter`.
            used.max(number + 1, ordering: .sequentiallyConsistent)
            // Without a place in which the thread's end is told it goes on without a seat.
            if plimsoll_take_seat(seat.base, { ThreadSeats.leave($0) }) != 0 { leave(seat.base) }
            return
        }
        // Nobody who shares it ever finds it idle.
        let last = seat(capacity, memory)
        last.lane.pointee.store(-1, ordering: .relaxed)
        _ = plimsoll_take_seat(last.base) { ThreadSeats.leave($0) }
    }

    private static func leave(_ base: UnsafeMutableRawPointer?) {
        guard let base, let memory, base != seat(capacity, memory).base else { return }
        let seat = ThreadSeat(base: base)
        seat.endBorrowing()
        seat.visited.pointee.store(0, ordering: .relaxed)
        seat.lane.pointee.store(0, ordering: .releasing)
    }

    /// Tells closings apart: never that of an open shard or of a closed one.
    static func ticket() -> UInt { tickets.add(1, ordering: .relaxed).newValue }
    // Relaxed: a number that orders nothing.
    private static let tickets = Atomic<UInt>(CacheShard.open)

    /// Whether the kernel has begun to refuse barriers.
    private static let areBarriersRefused = Atomic(false)

    /// Whether shards may open. Not once barriers are refused: closing would be slow, so that look-ups take locks from then on.
    // Relaxed: a shard that opens all the same is closed as any other, at the slow price.
    @usableFromInline
    static var mayOpen: Bool { !areBarriersRefused.load(ordering: .relaxed) }

    /// Has every thread that runs pass a full barrier.
    static func barrier() {
        if plimsoll_barrier() == 0 { return }
        // A forked child has to say again that it wants barriers.
        if plimsoll_prepare_barrier() == 0, plimsoll_barrier() == 0 { return }
        // For want of memory, for which the barrier of all processes asks for none.
        if plimsoll_slow_barrier() == 0 { return }
        // Refused for good, as by a seccomp filter installed late. What is still open is closed by waiting: a store reaches the other processors in
        // microseconds at most, whatever comes of barriers (Morrison and Afek, "Temporally bounding TSO for fence-free asymmetric synchronization",
        // ASPLOS 2015), and a thread that has lost its processor has passed a barrier. That is the case once for each open shard.
        areBarriersRefused.store(true, ordering: .relaxed)
        plimsoll_nap(10_000_000)
    }

    /// Waits until no thread reads shards that have been closed.
    ///
    /// - Parameter isClosed: whether a shard, by its address, is one of them.
    /// - Returns: whether some thread has borrowed out of one of them.
    static func awaitLeaving(_ isClosed: (UInt) -> Bool) -> Bool {
        guard let memory else { return false }
        barrier()
        var isAnyLent = false
        for number in 0..<used.load(ordering: .acquiring) {
            let seat = seat(number, memory)
            var looks = 0
            // Acquired with what its thread has read, which is over then.
            while isClosed(seat.visited.pointee.load(ordering: .acquiring)) {
                precondition(seat.base != plimsoll_seat(), "a key's `==` has used the cache that called it")
                looks += 1
                // It is a matter of nanoseconds, unless the reader has lost its processor.
                if looks > 100 { plimsoll_nap(50_000) }
            }
            // Whoever has left said before that what it borrows.
            let lender = seat.lender.pointee.load(ordering: .acquiring)
            if lender != 0, isClosed(lender) { isAnyLent = true }
        }
        return isAnyLent
    }

    /// Calls `body` with the seat of each thread that has borrowed out of `shard`, which is closed and locked.
    static func forEachBorrower(of shard: CacheShard, _ body: (ThreadSeat) -> Void) {
        guard let memory else { return }
        for number in 0..<used.load(ordering: .acquiring) {
            let seat = seat(number, memory)
            // Acquired with which value it is, or with all that its thread has read of it before.
            if seat.lender.pointee.load(ordering: .acquiring) == UInt(bitPattern: shard.base) { body(seat) }
        }
    }
}

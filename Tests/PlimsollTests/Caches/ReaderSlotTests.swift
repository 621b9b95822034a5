import Glibc
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Reader slots in rare situations of a process: a fork, a thread that ends in the middle of a look-up, refused
/// barriers. Each test runs in a separate process, which an alarm ends if the process hangs.
@Suite(.timeLimit(.minutes(5)), .needsLinux) struct ReaderSlotTests {
    typealias Object = CacheVisitTests.Object
    typealias Crew = CacheVisitTests.Crew

    private static func cache(opensAfter: Int = 4, shardCount: Int = 1) -> PurgeableCache<Int, Object> {
        PurgeableCache(
            "seated", lifetime: CacheLifetime(nil, nil, nil), shardCount: shardCount, opensAfter: opensAfter, time: .running, cost: { _, _ in 1 })
    }

    private static func isOpen(_ cache: PurgeableCache<Int, Object>) -> Bool {
        cache.directory.shard(at: 0).openness.pointee.load(ordering: .relaxed) == CacheShard.open
    }

    // MARK: Forks

    /// Returns a random number without generic code of the standard library: a thread of the child that needed metadata
    /// would wait for ever.
    private static func number(_ random: inout SeededGenerator) -> Int { Int(random.next() % 150) }

    /// Runs the look-ups of a forked child's threads, and returns the status to exit with.
    private static func readInChild() -> Int32 {
        let crew = Crew(), gate = Mutex(()), other = Atomic<UInt>(0)
        gate.withLock { _ in
            _ = crew.start(1) { _ in
                ReaderSlots.take()
                other.store(UInt(bitPattern: seatOfThisThread()), ordering: .sequentiallyConsistent)
                crew.arrived()
                gate.withLock { _ in }
            }
            crew.waitForArrivals(1)
            ReaderSlots.take()
        }
        crew.waitForEnd()
        if UInt(bitPattern: seatOfThisThread()) == other.load(ordering: .sequentiallyConsistent) { return 10 }

        let cache = cache(opensAfter: 3, shardCount: 4), wrong = Counter(), found = Counter(), readers = Crew()
        let readKeys: @Sendable (Int) -> Void = { thread in
            var random = SeededGenerator(seed: UInt64(thread))
            for step in 0..<20_000 {
                let number = number(&random)
                if thread == 0, step % 50 < 2 {
                    cache.insert(Object(number), forKey: number)
                } else if let object = cache.value(forKey: number) {
                    found.add(1)
                    if object.number != number { wrong.add(1) }
                }
            }
        }
        guard readers.start(3, readKeys) == 3 else { return 11 }
        readKeys(3)
        readers.waitForEnd()
        if wrong.value > 0 { return 12 }
        if found.value == 0 { return 13 }
        return cache.statistics.hits == found.value ? 0 : 14
    }

    @Test func `in a forked child every thread has a separate reader slot, finds the entries, and each hit counts`() async {
        await #expect(processExitsWith: .success) {
            alarm(240)
            // The runtime makes metadata of generic types once, under a lock that threads of the child would wait for
            // in vain, because the lock knows the forking thread by its former number.
            let first = Crew()
            _ = first.start(1) { _ in
                var random = SeededGenerator(seed: 1)
                let cache = ReaderSlotTests.cache(opensAfter: 3, shardCount: 4), number = ReaderSlotTests.number(&random)
                cache.insert(Object(number), forKey: number)
                _ = cache.value(forKey: number)
            }
            first.waitForEnd()
            let crew = Crew(), status = Atomic<Int32>(1)
            // This thread has locked no mutex. In a child, a contended mutex of Swift traps if the thread had used a
            // mutex before the fork.
            _ = crew.start(1) { _ in
                ReaderSlots.take()
                typealias Fork = @convention(c) () -> pid_t
                guard let fork = dlsym(nil, "fork").map({ unsafeBitCast($0, to: Fork.self) }), ReaderSlot.current != nil else { return }
                let child = fork()
                if child == 0 {
                    // The thread has all signals blocked, and the child has only this thread.
                    var none = sigset_t()
                    sigemptyset(&none)
                    pthread_sigmask(SIG_SETMASK, &none, nil)
                    alarm(240)
                    _exit(ReaderSlotTests.readInChild())
                }
                var result: Int32 = 0
                guard waitpid(child, &result, 0) == child else { return }
                status.store(result & 0x7f != 0 ? 100 + (result & 0x7f) : result >> 8, ordering: .sequentiallyConsistent)
            }
            crew.waitForEnd()
            exit(status.load(ordering: .sequentiallyConsistent))
        }
    }

    // MARK: Threads that end early

    /// The state of a thread that ends inside a borrow.
    private final class Last: Sendable {
        let cache = ReaderSlotTests.cache()
        let isGiven = Atomic(false)
        /// The address of the thread's reader slot.
        let reader = Atomic<UInt>(0)
    }

    @Test func `a thread that ends inside a borrow keeps no writer waiting`() async {
        await #expect(processExitsWith: .success) {
            alarm(240)
            let last = Last(), cache = last.cache
            cache.insert(Object(1), forKey: 1)
            var thread = pthread_t()
            let started = pthread_create(
                &thread, nil,
                { argument in
                    let last = Unmanaged<Last>.fromOpaque(argument!).takeUnretainedValue()
                    while !ReaderSlotTests.isOpen(last.cache) { _ = last.cache.value(forKey: 1) }
                    last.cache.withValue(forKey: 1) { _ in
                        // The write gives the thread a reference, which the thread never takes.
                        last.cache.insert(Object(2), forKey: 2)
                        last.reader.store(UInt(bitPattern: ReaderSlot.current?.base), ordering: .relaxed)
                        last.isGiven.store((ReaderSlot.current?.given.pointee.load(ordering: .relaxed) ?? 0) != 0, ordering: .relaxed)
                        pthread_exit(nil)
                    }
                    return nil
                }, Unmanaged.passUnretained(last).toOpaque())
            guard started == 0, pthread_join(thread, nil) == 0, last.isGiven.load(ordering: .relaxed) else { exit(2) }
            // The next thread takes over the reader slot.
            let crew = Crew(), alive = Counter()
            _ = crew.start(1) { _ in
                cache.insert(Object(3, alive: alive), forKey: 3)
                while !Self.isOpen(cache) { _ = cache.value(forKey: 3) }
                guard UInt(bitPattern: ReaderSlot.current?.base) == last.reader.load(ordering: .relaxed) else { exit(4) }
                cache.withValue(forKey: 3) { _ in
                    // The thread borrows as if no other thread had used the slot before.
                    guard ReaderSlot.current?.borrowedFrom.pointee.load(ordering: .relaxed) != 0 else { exit(5) }
                    cache.removeAll()
                }
            }
            crew.waitForEnd()
            exit(cache.count == 0 && alive.value == 0 ? 0 : 3)
        }
    }

    // MARK: Barriers

    @Test func `refused barriers make caches take locks, and open shards are closed all the same`() async {
        await #expect(processExitsWith: .success) {
            alarm(240)
            let cache = Self.cache(), alive = Counter()
            cache.insert(Object(1, alive: alive), forKey: 1)
            while !Self.isOpen(cache) { _ = cache.value(forKey: 1) }
            var filter = CallFilter()
            filter.refuse(CallFilter.membarrier, EPERM)
            guard filter.install() else { exit(2) }
            guard
                cache.withValue(
                    forKey: 1,
                    { object in
                        cache.removeAll()
                        return alive.value == 1 && object.number == 1
                    }) == true, alive.value == 0, !Self.isOpen(cache)
            else { exit(3) }
            cache.insert(Object(2), forKey: 2)
            for _ in 0..<100 where cache.value(forKey: 2)?.number != 2 { exit(4) }
            guard !Self.isOpen(cache), !ReaderSlots.mayOpen else { exit(5) }
            // Later caches take locks from the beginning.
            let late = Self.cache()
            late.insert(Object(3), forKey: 3)
            for _ in 0..<100 where late.withValue(forKey: 3, { $0.number }) != 3 { exit(6) }
            exit(Self.isOpen(late) ? 7 : 0)
        }
    }

    @Test func `a barrier that fails for lack of memory falls back to the slow barrier, and shards still open`() async {
        await #expect(processExitsWith: .success) {
            alarm(240)
            let cache = Self.cache()
            cache.insert(Object(1), forKey: 1)
            while !Self.isOpen(cache) { _ = cache.value(forKey: 1) }
            var filter = CallFilter()
            // 8 is MEMBARRIER_CMD_PRIVATE_EXPEDITED.
            filter.refuse(CallFilter.membarrier, argument: 0, 8, ENOMEM)
            guard filter.install() else { exit(2) }
            cache.insert(Object(2), forKey: 1)
            guard !Self.isOpen(cache), cache.value(forKey: 1)?.number == 2 else { exit(3) }
            for _ in 0..<100 where cache.value(forKey: 1)?.number != 2 { exit(4) }
            exit(ReaderSlots.mayOpen == Self.isOpen(cache) ? 0 : 5)
        }
    }
}

/// Returns the address of the calling thread's reader slot, if the thread has one.
private func seatOfThisThread() -> UnsafeMutableRawPointer? { ReaderSlot.current?.base }

import Glibc
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Effects of a whole process on a volatile cache. Each test runs in a separate process.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux) struct VolatileProcessTests {
    @Test func `a forked child sees an empty cache, and no call hangs`() async {
        await #expect(processExitsWith: .success) {
            let cache = VolatileCache<Int, [UInt8]>("parent")
            for key in 0..<2000 { cache.insert([UInt8](repeating: 7, count: 3000), forKey: key) }
            typealias Fork = @convention(c) () -> pid_t
            guard let fork = dlsym(nil, "fork").map({ unsafeBitCast($0, to: Fork.self) }) else { exit(3) }
            // The state during the fork is as if another thread were writing.
            let child = cache.store.log.withLock { _ in fork() }
            if child == 0 {
                // Swift's runtime may hang in a child that was forked while another thread was inside the runtime. The
                // alarm makes such a hang a failure instead of an endless wait.
                alarm(240)
                guard (0..<2000).allSatisfy({ cache.value(forKey: $0) == nil }) else { _exit(10) }
                guard cache.count == 0, cache.byteCount == .zero, cache.heldBytes == .zero, cache.volatileBytes == .zero else { _exit(11) }
                guard !cache.insert([1], forKey: 1), cache.removeValue(forKey: 1) == nil, cache.release(.max) == .zero else { _exit(12) }
                cache.removeAll()
                cache.limit = .mebibytes(1)
                _ = cache.noticeDrops()
                let own = VolatileCache<Int, [UInt8]>("child")
                _exit(own.insert([1], forKey: 1) && own.value(forKey: 1) == [1] ? 0 : 13)
            }
            var status: Int32 = 0
            guard waitpid(child, &status, 0) == child, status == 0 else { exit(status == 0 ? 4 : status >> 8) }
            exit((0..<2000).allSatisfy { cache.value(forKey: $0) == [UInt8](repeating: 7, count: 3000) } ? 0 : 5)
        }
    }

    @Test func `a forked child joins no load of the parent, and waits for no lock of the loads`() async {
        await #expect(processExitsWith: .success) {
            let cache = VolatileCache<Int, [UInt8]>("parent"), blockade = Blockade()
            let isStarted = Thread.start("load") {
                _ = try? cache.valueBlocking(forKey: 1) {
                    blockade.wait()
                    return [7]
                }
            }
            guard isStarted, blockUntil("the load", { blockade.count == 1 }) else { exit(2) }
            typealias Fork = @convention(c) () -> pid_t
            guard let fork = dlsym(nil, "fork").map({ unsafeBitCast($0, to: Fork.self) }) else { exit(3) }
            // The state during the fork is as if another thread were beginning a load.
            let child = cache.loads.flights.withLock { _ -> pid_t in
                let child = fork()
                guard child == 0 else { return child }
                // The alarm makes a hang a failure instead of an endless wait.
                alarm(240)
                guard (try? cache.valueBlocking(forKey: 1, orLoad: { [9] })) == [9] else { _exit(10) }
                guard cache.removeValue(forKey: 1) == nil, cache.purge(tag: "all") == 0, !cache.insert([1], forKey: 1)
                else { _exit(11) }
                cache.removeAll()
                _exit(0)
            }
            var status: Int32 = 0
            guard waitpid(child, &status, 0) == child, status == 0 else { exit(status == 0 ? 4 : 5) }
            exit(0)
        }
    }

    @Test(.needs(PurgeableBufferProcessTests.canLock, "this process may not lock memory"))
    func `a cache under mlockall is an ordinary bounded cache, and reports that`() async {
        await #expect(processExitsWith: .success) {
            let early = VolatileCache<Int, [UInt8]>("early")
            early.insert([1, 2, 3], forKey: 0)
            guard early.isVolatile, mlockall(MCL_CURRENT | MCL_FUTURE) == 0 else { exit(2) }
            let late = VolatileCache<Int, [UInt8]>("late")
            for (status, cache) in [(Int32(10), early), (20, late)] {
                for key in 1..<30_000 { cache.insert([UInt8](repeating: UInt8(key & 255), count: 4000), forKey: key) }
                guard !cache.isVolatile, cache.volatileBytes == .zero else { exit(status) }
                guard cache.heldBytes <= 67 << 20, cache.heldBytes > 50 << 20 else { exit(status + 1) }
                guard cache.statistics.evictions > 0, cache.noticeDrops() == .zero else { exit(status + 2) }
                guard cache.value(forKey: 29_999) == [UInt8](repeating: UInt8(29_999 & 255), count: 4000) else { exit(status + 3) }
                guard cache.release(1000 << 20) > 50 << 20, cache.heldBytes == .zero else { exit(status + 4) }
            }
            exit(0)
        }
    }

    @Test(.needs(PurgeableBufferProcessTests.canLock, "this process may not lock memory"))
    func `an emptied cache under mlockall holds only later entries`() async {
        await #expect(processExitsWith: .success) {
            let cache = VolatileCache<Int, Int>("locked", limit: .mebibytes(16))
            for key in 0..<40_000 { cache.insert(key, forKey: key) }
            guard mlockall(MCL_CURRENT | MCL_FUTURE) == 0 else { exit(2) }
            exit(Self.refill(cache))
        }
    }

    @Test func `an emptied cache holds only later entries where the kernel takes no page back`() async {
        await #expect(processExitsWith: .success) {
            let cache = VolatileCache<Int, Int>("refused", limit: .mebibytes(16))
            for key in 0..<40_000 { cache.insert(key, forKey: key) }
            guard CallFilter.refusingReclaim.install() else { exit(2) }
            exit(Self.refill(cache))
        }
    }

    /// Empties a cache of 40,000 numbers and fills the cache again under a lower limit. Returns the status to exit
    /// with.
    private static func refill(_ cache: VolatileCache<Int, Int>) -> Int32 {
        for round in 1...3 {
            cache.removeAll()
            guard cache.count == 0, cache.byteCount == .zero, cache.heldBytes == .zero else { return 10 }
            guard cache.store.index.holdsNothing else { return 11 }
            guard (0..<40_000).allSatisfy({ cache.value(forKey: $0) == nil }) else { return 12 }
            cache.limit = .kibibytes(512)
            for key in 0..<40_000 { cache.insert(-key, forKey: key + round * 100_000) }
            var found = 0
            for key in 0..<40_000 {
                if cache.value(forKey: key) != nil { return 13 }
                guard let value = cache.value(forKey: key + round * 100_000) else { continue }
                if value != -key { return 14 }
                found += 1
            }
            guard found == cache.count, found > 1000, cache.statistics.droppedByKernel == 0 else { return 15 }
            guard cache.byteCount == found * 32, cache.heldBytes <= 512 << 10 else { return 16 }
        }
        return 0
    }

    @Test func `without address space values are refused, and present entries stay`() async {
        await #expect(processExitsWith: .success) {
            let cache = VolatileCache<Int, [UInt8]>("bounded by RLIMIT_AS")
            for key in 0..<1000 { cache.insert([UInt8](repeating: 1, count: 4000), forKey: key) }
            var limit = rlimit(rlim_cur: 1 << 20, rlim_max: 1 << 20)
            guard setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0 else { exit(2) }
            let value = [UInt8](repeating: 2, count: 4000)
            var kept = 0
            for key in 1000..<3000 where cache.insert(value, forKey: key) { kept += 1 }
            // The oldest entries are evicted, and new entries take their place.
            guard (1000..<3000).contains(where: { cache.value(forKey: $0) == value }) else { exit(3) }
            let none = VolatileCache<Int, [UInt8]>("none")
            guard !none.insert([1], forKey: 1), none.value(forKey: 1) == nil, none.count == 0 else { exit(4) }
            exit(cache.count > 0 ? 0 : 5)
        }
    }
}

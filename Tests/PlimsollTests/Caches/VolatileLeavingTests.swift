import CAllocationCounter
import CPlimsollMemory
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Memory and address space that volatile caches leave behind, also where the kernel refuses calls. Each test runs in
/// a separate process, since other tests allocate too.
@Suite(
    .serialized, .timeLimit(.minutes(5)), .needsLinux, .needs(allocation_count_works(), "a sanitizer is in front of malloc"),
    .needs(plimsoll_page_size() == 4096, "the sizes are those of pages of 4 KiB"))
struct VolatileLeavingTests {
    /// Returns the bytes of this process: address space, and pages that are resident. Pages of files do not count as
    /// resident: the kernel may take them and bring them back at any time.
    private static func size() -> (mapped: Int, resident: Int) {
        let text = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8)) ?? ""
        let pages = text.split(separator: " ").prefix(3).compactMap { Int($0) }
        return pages.count == 3 ? (pages[0] * plimsoll_page_size(), (pages[1] - pages[2]) * plimsoll_page_size()) : (0, 0)
    }

    /// Returns true if the process has grown by less than so many bytes by `rounds` calls.
    private static func stays(_ rounds: Int, mapped: Int = 512 << 20, resident: Int = .max, _ body: () -> Void) -> Bool {
        for _ in 0..<rounds / 10 { body() }
        let before = size()
        for _ in 0..<rounds { body() }
        let after = size()
        return after.mapped - before.mapped < mapped && after.resident - before.resident < resident
    }

    @Test func `buffers for values leave no memory behind, in any way that they go`() async {
        await #expect(processExitsWith: .success) {
            let pool = ScratchPool(), kept = 256 << 10
            let isFreedWithPool = Self.stays(4000) {
                let own = ScratchPool()
                own.give(own.take(kept))
            }
            guard isFreedWithPool else { exit(2) }
            let isFreedWhenTooSmall = Self.stays(4000) {
                pool.give(pool.take(kept))
                pool.give(pool.take(2 * kept))
            }
            guard isFreedWhenTooSmall else { exit(3) }
            let isFreedByClear = Self.stays(4000) {
                pool.give(pool.take(kept))
                pool.clear()
            }
            guard isFreedByClear else { exit(4) }
            guard Self.stays(40_000, resident: 1 << 20, { _ = ScratchPool() }) else { exit(5) }
            exit(0)
        }
    }

    @Test func `indexes, address spaces and buffers leave nothing behind`() async {
        await #expect(processExitsWith: .success) {
            // Entries of one hash, so that the directory grows.
            let isIndexGone = Self.stays(800, resident: 1536 << 10) {
                let index = HashIndex(), hash: UInt64 = 0x0123_4567_89AB_CDEF
                var number = 0
                while number < 20 {
                    number += 1
                    _ = index.insert(SlotWord(segment: 0, offset: number * 8, hash: hash), hash, hashOf: { _ in hash })
                }
            }
            guard isIndexGone else { exit(2) }
            let isSpaceGone = Self.stays(40, mapped: 1 << 30) {
                var space = AddressSpace()
                if space.take(256 << 20) == nil { exit(3) }
            }
            guard isSpaceGone else { exit(4) }
            guard Self.stays(40, mapped: 1 << 30, { _ = PurgeableBuffer(byteCount: 256 << 20) }) else { exit(5) }
            exit(0)
        }
    }

    @Test func `caches and their segments leave nothing behind`() async {
        await #expect(processExitsWith: .success) {
            let isCacheGone = Self.stays(2500, mapped: 1 << 30, resident: 1 << 20) {
                let cache = VolatileCache<Int, Int>("leak", isVolatile: false, time: .running)
                cache.insert(1, forKey: 1)
            }
            guard isCacheGone else { exit(2) }
            let cache = VolatileCache<Int, Int>("emptied", isVolatile: false, time: .running)
            let isSegmentGone = Self.stays(2500, mapped: 1 << 30, resident: 1 << 20) {
                cache.insert(1, forKey: 1)
                cache.removeAll()
            }
            exit(isSegmentGone ? 0 : 3)
        }
    }

    @Test func `memory that a forked child would inherit is not used, and goes back`() async {
        await #expect(processExitsWith: .success) {
            let cache = VolatileCache<Int, [UInt8]>("early", isVolatile: false, time: .running)
            cache.insert([1], forKey: 0)
            let value = [UInt8](repeating: 2, count: 1 << 20)
            // MADV_WIPEONFORK.
            var filter = CallFilter()
            filter.refuse(CallFilter.madvise, argument: 2, 18, EINVAL)
            guard filter.install() else { exit(2) }
            let isSegmentGone = Self.stays(2000) { if cache.insert(value, forKey: 1) { exit(3) } }
            guard isSegmentGone else { exit(4) }
            guard cache.store.withLog(1000, { $0.table.count }) < 10 else { exit(5) }
            let isPageGone = Self.stays(20_000) {
                let index = HashIndex()
                if index.page(of: 1) != nil || index.pageCount > 0 { exit(6) }
            }
            guard isPageGone else { exit(7) }
            let none = VolatileCache<Int, Int>("none", isVolatile: false, time: .running)
            guard !none.insert(1, forKey: 1), none.value(forKey: 1) == nil, none.count == 0 else { exit(8) }
            let isBufferGone = Self.stays(100, mapped: 1 << 30) { if !PurgeableBuffer(byteCount: 64 << 20).isDiscarded { exit(9) } }
            exit(isBufferGone ? 0 : 10)
        }
    }

    @Test func `refused inserts use up no segment numbers`() async {
        await #expect(processExitsWith: .success) {
            let cache = VolatileCache<Int, [UInt8]>("early", isVolatile: false, time: .running)
            cache.insert([1], forKey: 0)
            let value = [UInt8](repeating: 2, count: 4 << 20)
            var limit = rlimit(rlim_cur: 1 << 20, rlim_max: 1 << 20)
            guard setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0 else { exit(2) }
            for key in 1..<100 where cache.insert(value, forKey: key) { exit(3) }
            exit(cache.store.withLog(1000, { $0.table.count }) < 10 ? 0 : 4)
        }
    }

    @Test func `without a page for the mark of a process, objects belong to each`() async {
        await #expect(processExitsWith: .success) {
            var limit = rlimit(rlim_cur: 1 << 20, rlim_max: 1 << 20)
            guard setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0 else { exit(2) }
            exit(ForkGuard.isProcess(ForkGuard.process) ? 0 : 3)
        }
    }

    @Test func `a kernel that takes no pages back makes a cache an ordinary one`() async {
        await #expect(processExitsWith: .success) {
            let cache = VolatileCache<Int, [UInt8]>("refused", isVolatile: true, time: .running)
            // MADV_FREE.
            var filter = CallFilter()
            filter.refuse(CallFilter.madvise, argument: 2, 8, EINVAL)
            guard filter.install() else { exit(2) }
            cache.insert([1], forKey: 0)
            guard cache.isVolatile else { exit(3) }
            // A large value is sealed at once.
            cache.insert([UInt8](repeating: 1, count: 1 << 20), forKey: 1)
            guard !cache.isVolatile, cache.volatileBytes == 0, cache.noticeDrops() == 0 else { exit(4) }
            let buffer = PurgeableBuffer(byteCount: 10_000, isGuarded: false)
            guard PurgeableBufferTests.fill(buffer), !buffer.isVolatile, PurgeableBufferTests.wrong(buffer) == 0 else { exit(5) }
            exit(cache.count == 2 ? 0 : 6)
        }
    }

    @Test func `a forked child has no tags, drops or shares`() async {
        await #expect(processExitsWith: .success) {
            let cache = VolatileCache<Int, [UInt8]>("parent", limit: .mebibytes(8), isVolatile: true, time: .running)
            for key in 0..<100 { cache.insert([UInt8](repeating: 7, count: 3000), forKey: key, tags: ["all"]) }
            cache.setShare(1)
            typealias Fork = @convention(c) () -> pid_t
            guard let fork = dlsym(nil, "fork").map({ unsafeBitCast($0, to: Fork.self) }) else { exit(3) }
            let child = cache.store.log.withLock { _ in fork() }
            if child == 0 {
                alarm(240)
                guard !cache.isVolatile, cache.limit == .zero else { _exit(10) }
                guard cache.count(tag: "all") == 0, cache.purge(tag: "all") == 0 else { _exit(11) }
                guard cache.noticeDrops() == 0, cache.evictAboveShare(.max) == 0, !cache.contains(1) else { _exit(12) }
                _exit(0)
            }
            var status: Int32 = 0
            guard waitpid(child, &status, 0) == child, status == 0 else { exit(status == 0 ? 4 : status >> 8) }
            exit(cache.count(tag: "all") == 100 ? 0 : 5)
        }
    }

    // MARK: Buffers

    /// Returns the status to exit with after a discard where the given calls are refused. The bytes of a discarded
    /// buffer are zeros, and the buffer has no claim on the meter.
    private static func discard(refusing calls: (inout CallFilter) -> Void) -> Int32 {
        let meter = ChargeMeter {}, buffer = PurgeableBuffer(byteCount: 10_000, isGuarded: false)
        guard PurgeableBufferTests.fill(buffer), let bytes = buffer.address else { return 2 }
        buffer.attach(volatile: meter)
        var filter = CallFilter()
        calls(&filter)
        guard filter.install() else { return 3 }
        guard (bytes + 5000).load(as: UInt8.self) != 0 else { return 4 }
        buffer.discard()
        guard buffer.isDiscarded, !buffer.beginAccess(), meter.heldBytes == .zero else { return 5 }
        return withExtendedLifetime(buffer) { (bytes + 5000).load(as: UInt8.self) == 0 ? 0 : 6 }
    }

    @Test func `a discarded buffer has no contents where the kernel refuses one way to release pages`() async {
        await #expect(processExitsWith: .success) {
            // MAP_FIXED.
            exit(Self.discard { $0.refuse(CallFilter.mmap, argument: 3, 0x10, areFlags: true, EAGAIN) })
        }
        await #expect(processExitsWith: .success) {
            // Kernels before 5.18 have no MADV_DONTNEED_LOCKED, so that two ways are all.
            var page: UnsafeMutableRawPointer?
            guard plimsoll_map(4096, 4096, &page) == 0, plimsoll_drop_locked(page, 4096) == 0 else { exit(0) }
            exit(
                Self.discard {
                    $0.refuse(CallFilter.mmap, argument: 3, 0x10, areFlags: true, EAGAIN)
                    // MADV_DONTNEED.
                    $0.refuse(CallFilter.madvise, argument: 2, 4, EINVAL)
                })
        }
    }

    @Test func `a discarded buffer is not alive where the kernel takes no page back`() async {
        await #expect(processExitsWith: .success) {
            let meter = ChargeMeter {}, buffer = PurgeableBuffer(byteCount: 10_000, isGuarded: false)
            buffer.attach(volatile: meter)
            guard PurgeableBufferTests.fill(buffer), CallFilter.refusingReclaim.install() else { exit(2) }
            buffer.discard()
            guard meter.heldBytes == .zero, buffer.isDiscarded, !buffer.beginAccess() else { exit(3) }
            exit(buffer.pages?.isAlive == false ? 0 : 4)
        }
    }

    @Test func `a guarded buffer stays guarded after a check for drops`() async {
        await #expect(processExitsWith: .signal(SIGSEGV)) {
            let buffer = PurgeableBuffer(byteCount: 10_000, isGuarded: true)
            guard PurgeableBufferTests.fill(buffer), buffer.noticeDrops() == 0, let bytes = buffer.address else { exit(2) }
            exit(Int32((bytes + 5000).load(as: UInt8.self) & 1))
        }
    }

    #if DEBUG
    @Test func `in a debug build a buffer is guarded by default`() async {
        await #expect(processExitsWith: .signal(SIGSEGV)) {
            let buffer = PurgeableBuffer(byteCount: 10_000)
            guard PurgeableBufferTests.fill(buffer), let bytes = buffer.address else { exit(2) }
            exit(Int32((bytes + 5000).load(as: UInt8.self) & 1))
        }
    }
    #endif
}

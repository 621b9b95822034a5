import Glibc
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Effects of a buffer on a whole process, and of a process on its buffers. Each test runs in a separate process.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux) struct PurgeableBufferProcessTests {
    /// Returns the address of a byte after the end of all accesses.
    private static func stray(in buffer: PurgeableBuffer) -> UnsafeMutablePointer<UInt8>? {
        guard PurgeableBufferTests.fill(buffer) else { return nil }
        return buffer.withAccess { bytes in bytes.withUnsafeMutableBytes { $0.baseAddress! + 5000 } }?.assumingMemoryBound(to: UInt8.self)
    }

    @Test func `a stray access to a guarded buffer ends the process`() async {
        await #expect(processExitsWith: .signal(SIGSEGV)) {
            let buffer = PurgeableBuffer(byteCount: 10_000, isGuarded: true)
            exit(Self.stray(in: buffer).map { Int32($0.pointee & 1) } ?? 2)
        }
        await #expect(processExitsWith: .signal(SIGSEGV)) {
            let buffer = PurgeableBuffer(byteCount: 10_000, isGuarded: true)
            let stray = Self.stray(in: buffer)
            buffer.discard()
            exit(stray.map { Int32($0.pointee & 1) } ?? 2)
        }
    }

    @Test func `a stray access to an unguarded buffer reads the present bytes`() async {
        await #expect(processExitsWith: .success) {
            let buffer = PurgeableBuffer(byteCount: 10_000, isGuarded: false)
            guard let stray = Self.stray(in: buffer), stray.pointee == 0x71 else { exit(2) }
            buffer.discard()
            exit(stray.pointee == 0 ? 0 : 3)
        }
    }

    @Test func `a stray write to the mark of a page is detected`() async {
        await #expect(processExitsWith: .success) {
            let buffer = PurgeableBuffer(byteCount: 200_000, isGuarded: false)
            guard let stray = Self.stray(in: buffer) else { exit(2) }
            // The mark of the second page is one cache line inside the page.
            (stray - 5000 + Int(getpagesize()) + 64).pointee = 1
            exit(buffer.beginAccess() ? 3 : 0)
        }
    }

    @Test func `ending an access that has not begun stops the process`() async {
        await #expect(processExitsWith: .failure) { PurgeableBuffer(byteCount: 10).endAccess() }
        await #expect(processExitsWith: .failure) {
            let buffer = PurgeableBuffer(byteCount: 10)
            _ = buffer.beginAccess()
            buffer.endAccess()
            buffer.endAccess()
        }
        await #expect(processExitsWith: .failure) { _ = PurgeableBuffer(byteCount: -1) }
    }

    @Test(.needs(canLock, "this process may not lock memory"))
    func `a buffer in locked memory stays until released`() async {
        await #expect(processExitsWith: .success) {
            let early = PurgeableBuffer(byteCount: 10_000)
            guard PurgeableBufferTests.fill(early), mlockall(MCL_CURRENT | MCL_FUTURE) == 0 else { exit(2) }
            let late = PurgeableBuffer(byteCount: 10_000)
            guard PurgeableBufferTests.fill(late) else { exit(3) }
            for (status, buffer) in [(Int32(4), early), (5, late)] {
                guard PurgeableBufferTests.wrong(buffer) == 0 else { exit(status) }
                buffer.reclaim()
                guard PurgeableBufferTests.wrong(buffer) == 0, !buffer.isVolatile, buffer.heldBytes == 10_000 else { exit(status + 2) }
                guard buffer.volatileBytes == .zero, buffer.noticeDrops() == .zero else { exit(status + 4) }
                guard buffer.release(.max) == 10_000, buffer.isDiscarded else { exit(status + 6) }
            }
            exit(0)
        }
    }

    /// True if a child may lock all its memory. A child has the limit of this process.
    static let canLock: Bool = {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(__RLIMIT_MEMLOCK.rawValue), &limit)
        return limit.rlim_cur == rlim_t.max || geteuid() == 0
    }()

    @Test func `a buffer is discarded from the start in a process that gets no more memory`() async {
        await #expect(processExitsWith: .success) {
            // RLIMIT_AS: less than the bytes that are already mapped.
            var limit = rlimit(rlim_cur: 1 << 20, rlim_max: 1 << 20)
            guard setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0 else { exit(2) }
            let buffer = PurgeableBuffer(byteCount: 1 << 20)
            exit(buffer.isDiscarded && !buffer.beginAccess() ? 0 : 3)
        }
    }

    @Test func `a forked child has none of the contents, and no call hangs`() async {
        await #expect(processExitsWith: .success) {
            let offered = PurgeableBuffer(byteCount: 100_000), accessed = PurgeableBuffer(byteCount: 100_000)
            let untouched = PurgeableBuffer(byteCount: 100_000), busy = PurgeableBuffer(byteCount: 100_000)
            guard PurgeableBufferTests.fill(offered), PurgeableBufferTests.fill(accessed), accessed.beginAccess() else { exit(2) }
            // Swift hides `fork`. A child that only uses memory is a valid use of `fork`.
            typealias Fork = @convention(c) () -> pid_t
            guard let fork = dlsym(nil, "fork").map({ unsafeBitCast($0, to: Fork.self) }) else { exit(3) }
            // The state during the fork is as if another thread held the lock.
            let child = busy.state.withLock { _ in fork() }
            if child == 0 {
                // Swift's runtime may hang in a child that was forked while another thread was inside the runtime. The
                // alarm makes such a hang a failure instead of an endless wait.
                alarm(240)
                for (status, buffer) in [(Int32(10), offered), (11, accessed), (12, untouched), (13, busy)] {
                    guard !buffer.beginAccess(), buffer.isDiscarded, buffer.heldBytes == .zero, buffer.release(.max) == .zero else { _exit(status) }
                    buffer.endAccess()
                    buffer.discard()
                    _ = buffer.noticeDrops()
                }
                let own = PurgeableBuffer(byteCount: 100_000)
                _exit(PurgeableBufferTests.fill(own) && PurgeableBufferTests.wrong(own) == 0 ? 0 : 20)
            }
            var status: Int32 = 0
            guard waitpid(child, &status, 0) == child, status == 0 else { exit(4) }
            // The buffers of the parent are unchanged.
            accessed.endAccess()
            exit(PurgeableBufferTests.wrong(offered) == 0 && PurgeableBufferTests.wrong(accessed) == 0 ? 0 : 5)
        }
    }
}

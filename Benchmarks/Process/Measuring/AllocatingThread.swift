import Glibc
import Plimsoll
import PlimsollDemos
import Synchronization

/// A thread that allocates and frees without a pause and records the longest step.
///
/// Mutable state: atomics. All are relaxed, because a step more or less does not matter, except `steps`. `steps` is
/// stored with release ordering after `longest`, and loaded with acquire ordering before `longest` is read: `longest`
/// covers every counted step.
final class AllocatingThread: Sendable {
    private let isOver = Atomic(false)
    private let isWatched = Atomic(false)
    private let longest = Atomic(0)
    private let steps = Atomic(0)

    /// Blocks alive at a time, of 16 bytes to 12 KiB.
    private static let blocks = 4096
    /// Nanoseconds. A longer step may have waited for a processor, so the kernel's run-queue time is read then.
    private static let suspicious = 20_000

    /// Returns the longest step that overlaps the run of `body`, less the time that the thread waited for a
    /// processor.
    func longestStep(during body: () throws -> Void) rethrows -> Duration {
        longest.store(0, ordering: .relaxed)
        isWatched.store(true, ordering: .relaxed)
        defer { isWatched.store(false, ordering: .relaxed) }
        try body()
        // A step that stalled for the whole of `body` ends after `body`.
        let seen = steps.load(ordering: .acquiring)
        while steps.load(ordering: .acquiring) < seen + 2 { SteadyClock.sleep(.microseconds(100)) }
        return .nanoseconds(longest.load(ordering: .relaxed))
    }

    /// Runs `body` while an allocating thread runs.
    static func beside<Value>(_ body: (AllocatingThread) throws -> Value) throws -> Value {
        let allocating = AllocatingThread()
        guard let thread = PlainThread({ allocating.run() }) else { throw Failure.failed("cannot start a thread") }
        defer {
            allocating.isOver.store(true, ordering: .relaxed)
            thread.join()
        }
        return try body(allocating)
    }

    private func run() {
        let blocks = UnsafeMutableBufferPointer<UnsafeMutableRawPointer?>.allocate(capacity: Self.blocks)
        blocks.initialize(repeating: nil)
        defer {
            for block in blocks { free(block) }
            blocks.deallocate()
        }
        let queue = RunQueue()
        var random: UInt64 = 0x9E37_79B9_7F4A_7C15
        var waited = queue.waited, began = Int(SteadyClock.now.inNanoseconds), wasWatched = false, step = 0
        while !isOver.load(ordering: .relaxed) {
            // xorshift64 (Marsaglia 2003): sizes that no branch predictor learns, at the cost of a nanosecond.
            random ^= random << 13
            random ^= random >> 7
            random ^= random << 17
            let slot = Int(random >> 52) % Self.blocks
            free(blocks[slot])
            blocks[slot] = malloc(16 + Int(random % (12 << 10)))
            blocks[slot]?.storeBytes(of: 1, as: UInt8.self)

            let watched = isWatched.load(ordering: .relaxed)
            let now = Int(SteadyClock.now.inNanoseconds)
            var took = now - began
            began = now
            // Short waits add up between suspicious steps and must not be subtracted from the next one. So read the
            // waits now and then.
            if took > Self.suspicious || step % 4096 == 0 {
                let total = queue.waited
                took -= total - waited
                waited = total
                began = Int(SteadyClock.now.inNanoseconds)
            }
            if watched || wasWatched, took > longest.load(ordering: .relaxed) {
                longest.store(took, ordering: .relaxed)
            }
            wasWatched = watched
            step += 1
            steps.store(step, ordering: .releasing)
        }
    }
}

/// The kernel's run-queue time of the thread that created this value: time in which the thread was runnable but did
/// not run.
private struct RunQueue: ~Copyable {
    private let file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)

    deinit { if file >= 0 { close(file) } }

    /// Nanoseconds so far: the second number of the line (Documentation/scheduler/sched-stats.rst); 0 where there is
    /// none.
    var waited: Int {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 128) { line in
            let length = pread(file, line.baseAddress, line.count, 0)
            guard length > 0, let space = line[..<length].firstIndex(of: UInt8(ascii: " ")) else { return 0 }
            return line[(space + 1)..<length].prefix { $0 >= 48 && $0 <= 57 }.reduce(0) { $0 * 10 + Int($1 - 48) }
        }
    }
}

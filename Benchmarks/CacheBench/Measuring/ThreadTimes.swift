import Glibc

/// Times of the calling thread, in nanoseconds.
struct ThreadTimes: Codable {
    /// Time on a processor.
    var processor: Double
    /// Wall time.
    var wall: Double
    /// Time in which the thread was ready to run and waited for others.
    var waited: Double

    /// Returns the times until now.
    static func now(_ queue: borrowing RunQueue) -> ThreadTimes {
        ThreadTimes(processor: clock(CLOCK_THREAD_CPUTIME_ID), wall: clock(CLOCK_MONOTONIC), waited: queue.waited)
    }

    static func - (end: ThreadTimes, start: ThreadTimes) -> ThreadTimes {
        ThreadTimes(
            processor: end.processor - start.processor, wall: end.wall - start.wall, waited: end.waited - start.waited)
    }

    /// Returns the time of a kernel clock.
    static func clock(_ id: clockid_t) -> Double {
        var time = timespec()
        clock_gettime(id, &time)
        return Double(time.tv_sec) * 1e9 + Double(time.tv_nsec)
    }
}

/// The kernel's run-queue time of the thread that created this value: time in which the thread was ready to run and did
/// not run.
struct RunQueue: ~Copyable {
    private let file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)

    deinit { if file >= 0 { close(file) } }

    /// Nanoseconds so far: the second number of the line (Documentation/scheduler/sched-stats.rst); 0 without a number.
    var waited: Double {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 128) { line in
            let length = pread(file, line.baseAddress, line.count, 0)
            guard length > 0, let space = line[..<length].firstIndex(of: UInt8(ascii: " ")) else { return 0 }
            return Double(
                line[(space + 1)..<length].prefix { $0 >= 48 && $0 <= 57 }.reduce(0) { $0 * 10 + Int($1 - 48) })
        }
    }
}

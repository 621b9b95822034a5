import Glibc
import Plimsoll

/// The machine's running time. Parent and child share this clock, so that events of both fit on one axis.
package enum SteadyClock {
    package static var now: Duration { read(CLOCK_MONOTONIC) }

    package static func sleep(_ duration: Duration) { sleep(until: now + duration) }

    package static func sleep(until instant: Duration) {
        let (seconds, attoseconds) = instant.components
        var time = timespec(tv_sec: Int(seconds), tv_nsec: Int(attoseconds / 1_000_000_000))
        while clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nil) == EINTR {}
    }

    /// Processor time of the calling thread so far.
    package static var thread: Duration { read(CLOCK_THREAD_CPUTIME_ID) }

    private static func read(_ clock: clockid_t) -> Duration {
        var time = timespec()
        clock_gettime(clock, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}

extension Duration {
    package var milliseconds: Double { inSeconds * 1000 }
}

import Glibc
package import Plimsoll
import PlimsollLinux

/// The machine's running time. Parent and child share this clock, so that events of both fit on one axis.
package enum SteadyClock {
    package static var now: Duration { timekeeper.elapsed() }

    /// The same time for a manager.
    package static var timekeeper: Timekeeper { .machine }

    package static func sleep(_ duration: Duration) { sleep(until: now + duration) }

    package static func sleep(until instant: Duration) {
        let (seconds, attoseconds) = instant.components
        var time = timespec(tv_sec: Int(seconds), tv_nsec: Int(attoseconds / 1_000_000_000))
        while clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nil) == EINTR {}
    }

    /// Processor time of the calling thread so far.
    package static var thread: Duration {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}

extension Duration {
    package var milliseconds: Double { inSeconds * 1000 }
}

import Glibc
import Plimsoll

/// Signals as a queue to be read instead of handlers, so that the program can first remove its groups and processes.
package struct SignalQueue {
    /// Signals that end a command.
    package static let endings = [SIGINT, SIGTERM, SIGHUP]

    private var set = sigset_t()

    /// Blocks `signals` for this thread and threads started later. SIGPIPE is blocked as well: a reader that is gone
    /// shows as a failing write, not as death of this process.
    package init(_ signals: [Int32] = endings + [SIGCHLD]) {
        sigemptyset(&set)
        for signal in signals { sigaddset(&set, signal) }
        var blocked = set
        sigaddset(&blocked, SIGPIPE)
        pthread_sigmask(SIG_BLOCK, &blocked, nil)
    }

    /// Returns the next signal. Waits at most `limit`.
    package func next(within limit: Duration = .zero) -> Int32? {
        let nanoseconds = max(0, limit.inNanoseconds)
        var time = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
        var queue = set
        let signal = sigtimedwait(&queue, nil, &time)
        return signal > 0 ? signal : nil
    }

    /// Returns a signal that ends the command, if one has come since the last call.
    package func endingArrived() -> Int32? {
        while let signal = next() {
            if Self.endings.contains(signal) { return signal }
        }
        return nil
    }
}

import Glibc
import Plimsoll

/// Signals as a queue to be read instead of handlers: whoever made groups and processes gets to remove them first.
struct SignalQueue {
    /// What ends a command.
    static let endings = [SIGINT, SIGTERM, SIGHUP]

    private var set = sigset_t()

    /// Takes `signals` out of normal delivery for this thread and those started later. SIGPIPE is blocked as well:
    /// a reader that has gone is seen by the failing write, not by death.
    init(_ signals: [Int32] = endings + [SIGCHLD]) {
        sigemptyset(&set)
        for signal in signals { sigaddset(&set, signal) }
        var blocked = set
        sigaddset(&blocked, SIGPIPE)
        pthread_sigmask(SIG_BLOCK, &blocked, nil)
    }

    /// The next signal, waiting at most `limit` for it.
    func next(within limit: Duration = .zero) -> Int32? {
        let nanoseconds = max(0, limit.inNanoseconds)
        var time = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
        var queue = set
        let signal = sigtimedwait(&queue, nil, &time)
        return signal > 0 ? signal : nil
    }

    /// Whether a signal that ends the command has come since the last call.
    func endingArrived() -> Int32? {
        while let signal = next() {
            if Self.endings.contains(signal) { return signal }
        }
        return nil
    }
}

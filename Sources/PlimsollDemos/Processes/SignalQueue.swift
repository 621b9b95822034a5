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
    package func next(within limit: Duration = .zero) -> Int32? { take(within: limit)?.si_signo }

    /// Returns the next signal, if the signal ends a command and is to be passed on to a child. Waits at most `limit`.
    /// Leaves out Ctrl-C: the terminal has sent the signal to the child as well, and many programs end at once on a
    /// second one.
    package func nextToPassOn(within limit: Duration) -> Int32? {
        guard let info = take(within: limit), Self.endings.contains(info.si_signo) else { return nil }
        // A positive code tells that the kernel has sent the signal, and no process.
        return info.si_signo == SIGINT && info.si_code > 0 ? nil : info.si_signo
    }

    private func take(within limit: Duration) -> siginfo_t? {
        let nanoseconds = max(0, limit.inNanoseconds)
        var time = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
        var queue = set, info = siginfo_t()
        return sigtimedwait(&queue, &info, &time) > 0 ? info : nil
    }

    /// Returns a signal that ends the command, if one has come since the last call.
    package func endingArrived() -> Int32? {
        while let signal = next() {
            if Self.endings.contains(signal) { return signal }
        }
        return nil
    }
}

#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc

/// An event source: a file whose readiness ends a wait, with the times for polling.
///
/// Two rules keep the loop from spinning, regardless of the file (T18). After each event the source rests for a while.
/// After a failure the source is ignored for a second, doubling up to a minute.
struct EventSource {
    /// The file descriptor, or -1 for none.
    var file: Int32 = -1
    /// `POLLPRI` for control files, which are readable at any time (K7). `POLLIN` for eventfds, FIFOs and sockets.
    var events: Int16
    private var backOff = BackOff()

    init(_ events: Int32) { self.events = Int16(events) }

    /// Returns true if the file is polled at `now`.
    func isPollable(at now: Duration) -> Bool { file >= 0 && backOff.isOver(at: now) }

    /// Returns true if there is no file and a new one may be armed at `now`.
    func isToBeArmed(at now: Duration) -> Bool { file < 0 && backOff.isOver(at: now) }

    /// Returns the time until a rest ends; `nil` if there is no rest.
    func rest(at now: Duration) -> Duration? { file < 0 ? nil : backOff.remaining(at: now) }

    /// Records a genuine event: the file is not polled for `pause`.
    mutating func rang(at now: Duration, pause: Duration) { backOff.rest(for: pause, at: now) }

    /// Records a failure: the file is neither polled nor armed again for a back-off that doubles each time.
    mutating func failed(at now: Duration) { backOff.failed(at: now) }

    /// Closes the file, if there is one.
    mutating func closed(_ kernel: any Kernel) {
        if file >= 0 { kernel.close(file) }
        file = -1
    }
}

/// A back-off after a failure: one second, doubling up to a minute.
struct BackOff {
    private var until: Duration?
    private var pause = Self.first

    static let first = Duration.seconds(1)
    static let longest = Duration.seconds(60)

    /// Returns the rest of the pause; `nil` if the pause is over.
    func remaining(at now: Duration) -> Duration? {
        // If the clock went far back, the pause must not last for years.
        guard let until, now < until, until - now <= Self.longest else { return nil }
        return until - now
    }

    func isOver(at now: Duration) -> Bool { remaining(at: now) == nil }

    mutating func failed(at now: Duration) {
        until = now + pause
        pause = min(pause * 2, Self.longest)
    }

    /// Resets the back-off: the next failure counts as the first.
    mutating func recovered() { pause = Self.first }

    /// Begins a rest after success, and resets the back-off.
    mutating func rest(for duration: Duration, at now: Duration) {
        until = now + duration
        pause = Self.first
    }
}
#endif

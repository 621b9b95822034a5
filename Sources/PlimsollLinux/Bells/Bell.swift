import Glibc

/// A file whose readiness ends a wait, and when it is listened to.
///
/// Two rules keep the loop from spinning whatever the file does (T18): after each ring a bell rests for a while, and after a failure it is deaf for
/// a second, doubling up to a minute.
struct Bell {
    /// The file, or -1 for none.
    var file: Int32 = -1
    /// `POLLPRI` for control files, which are readable at any time (K7); `POLLIN` for eventfds, FIFOs and sockets.
    var events: Int16
    private var backOff = BackOff()

    init(_ events: Int32) { self.events = Int16(events) }

    /// Whether it is listened to at `now`.
    func isHeard(at now: Duration) -> Bool { file >= 0 && backOff.isOver(at: now) }

    /// Whether it is without a file and may be armed again at `now`.
    func isToBeArmed(at now: Duration) -> Bool { file < 0 && backOff.isOver(at: now) }

    /// How long until a rest ends; `nil` if it is not resting.
    func rest(at now: Duration) -> Duration? { file < 0 ? nil : backOff.remaining(at: now) }

    /// It rang in earnest: not again for `pause`.
    mutating func rang(at now: Duration, pause: Duration) { backOff.rest(for: pause, at: now) }

    /// It failed: not to be listened to, or armed again, for a while that doubles each time.
    mutating func failed(at now: Duration) { backOff.failed(at: now) }

    /// Closes the file, if there is one.
    mutating func closed(_ kernel: any Kernel) {
        if file >= 0 { kernel.close(file) }
        file = -1
    }
}

/// A pause after a failure: one second, doubling up to a minute.
struct BackOff {
    private var until: Duration?
    private var pause = Self.first

    static let first = Duration.seconds(1)
    static let longest = Duration.seconds(60)

    /// What is left of the pause; `nil` if it is over.
    func remaining(at now: Duration) -> Duration? {
        // A clock that went far back must not make a pause of years.
        guard let until, now < until, until - now <= Self.longest else { return nil }
        return until - now
    }

    func isOver(at now: Duration) -> Bool { remaining(at: now) == nil }

    mutating func failed(at now: Duration) {
        until = now + pause
        pause = min(pause * 2, Self.longest)
    }

    /// Things are well: the next failure is the first again.
    mutating func recovered() { pause = Self.first }

    /// A rest after success, which makes the next failure the first again.
    mutating func rest(for duration: Duration, at now: Duration) {
        until = now + duration
        pause = Self.first
    }
}

import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux

/// Readings of the real source at the pace of a display, until a time limit or a signal.
struct LiveReadings {
    private let source = LinuxPressureSource()
    private let began = SteadyClock.now

    var capabilities: Capabilities { source.capabilities }

    /// Calls `body` with each reading, stamped from zero. Stops when `limit` is over, a signal comes or `body`
    /// returns false.
    ///
    /// - Throws: `Failure` if nothing can be read.
    func forEach(every step: Duration, atMost limit: Duration?, _ body: (PressureReading) -> Bool) throws {
        let signals = SignalQueue(SignalQueue.endings)
        while true {
            let now = SteadyClock.now - began
            if let limit, now >= limit { return }
            let reading: PressureReading
            do {
                reading = try source.read(at: now)
            } catch {
                throw Failure.unavailable("no reading can be taken: \(error); `plimsoll doctor` says more")
            }
            guard body(reading) else { return }
            // Wait for the signal, not in the source: Ctrl-C takes effect at once, and the display keeps a fixed
            // pace. Events of the source are only drained.
            defer { source.wait(atMost: .zero) }
            if signals.next(within: limit.map { min(step, max(.zero, $0 - now)) } ?? step) != nil { return }
        }
    }
}

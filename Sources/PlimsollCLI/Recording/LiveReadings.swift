import Glibc
import Plimsoll
import PlimsollLinux

/// Readings of the real source at the pace of a display, until a time is over or a signal ends it.
struct LiveReadings {
    private let source = LinuxPressureSource()
    private let began = SteadyClock.now

    var capabilities: Capabilities { source.capabilities }

    /// Calls `body` with each reading, stamped from zero, until `limit` is over, a signal comes or `body` returns false.
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
            // Waiting for the signal rather than in the source: Ctrl-C is answered at once, and a display's pace is its own. What the kernel
            // rang for meanwhile is only taken note of.
            defer { source.wait(atMost: .zero) }
            if signals.next(within: limit.map { min(step, max(.zero, $0 - now)) } ?? step) != nil { return }
        }
    }
}

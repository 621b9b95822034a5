/// Decides when to check if the kernel has taken volatile pages. A reader of such a page finds out by itself. The check
/// updates the accounting, so that the pages taken count as room again and are reported.
struct DropWatch: Sendable {
    private var lookedAt: Duration?
    private var freed: ByteCount?
    private var events: PressureReading.EventCounts?

    /// Pause between checks while the kernel's counter moves.
    static let countedPause = Duration.milliseconds(250)
    /// Pause between checks while the group meets its limit, where the kernel does not count the pages taken.
    static let metPause = Duration.seconds(1)
    /// Pause between checks while little is free and nothing indicates if pages are taken.
    static let tightPause = Duration.seconds(10)

    /// Returns true if a check is due after `reading`; the check then counts as made. Only evidence makes a check due:
    /// an idle process is not woken.
    mutating func isDue(_ reading: PressureReading, isTight: Bool) -> Bool {
        guard reading.volatile > .zero else {
            // Nothing can be lost, so the counters of now are no evidence later.
            (freed, events) = (reading.lazyFreed, reading.events)
            return false
        }
        // Counters that fall belong to another group (K12): a change is evidence either way.
        let isCounted = reading.lazyFreed != nil
        let pause: Duration
        if isCounted, let freed, reading.lazyFreed != freed {
            pause = Self.countedPause
        } else if !isCounted, let events, reading.events != events {
            pause = Self.metPause
        } else if !isCounted, isTight {
            pause = Self.tightPause
        } else {
            if freed == nil { freed = reading.lazyFreed }
            if events == nil { events = reading.events }
            return false
        }
        guard lookedAt.map({ reading.at - $0 >= pause || reading.at < $0 }) ?? true else { return false }
        (lookedAt, freed, events) = (reading.at, reading.lazyFreed, reading.events)
        return true
    }
}

/// Decides when it is worth looking whether the kernel has taken volatile pages. Whoever reads one finds out by itself; looking keeps the books, so
/// that what was taken counts as room again and is reported.
struct DropWatch: Sendable {
    private var lookedAt: Duration?
    private var freed: ByteCount?
    private var events: PressureReading.EventCounts?

    /// Between looks while the kernel's counter moves.
    static let countedPause = Duration.milliseconds(250)
    /// Between looks while the group meets its limit, where pages taken aren't counted.
    static let metPause = Duration.seconds(1)
    /// Between looks while little is free and nothing tells whether pages are taken.
    static let tightPause = Duration.seconds(10)

    /// Whether to look after `reading`; if so, the look counts as taken. Only evidence makes a look: an idle process is not woken for it.
    mutating func isDue(_ reading: PressureReading, isTight: Bool) -> Bool {
        guard reading.volatile > .zero else {
            // Nothing to lose: what happens now is no evidence later.
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

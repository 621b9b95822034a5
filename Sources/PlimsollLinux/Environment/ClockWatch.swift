#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll
import PlimsollLifecycle

/// Watches for setting of the wall clock, for the next date and for the next shift of the time zone. Uses one timer,
/// which the kernel cancels when the clock is set (`TFD_TIMER_CANCEL_ON_SET` of timerfd_create(2)).
struct ClockWatch {
    typealias Kind = EnvironmentChange.Kind

    private(set) var eventSource = EventSource(POLLIN)
    private(set) var retry = RetryState()
    private var kinds: Set<Kind> = []
    /// The second that the timer is set to.
    private var due = Self.never
    /// The kinds that the next `collect` reports.
    private var missed: Set<Kind> = []
    private let kernel: any EnvironmentKernel

    /// A time that does not come, in the year 2223, for watches of the clock only. As late as a timer can be set.
    private static let never: Int64 = 8_000_000_000
    static let served: Set<Kind> = [.clock, .day, .timeZone]

    init(_ kernel: any EnvironmentKernel) { self.kernel = kernel }

    mutating func add(_ kind: Kind, at now: Duration) {
        kinds.insert(kind)
        arm(at: now)
    }

    mutating func remove(_ kind: Kind, at now: Duration) {
        kinds.remove(kind)
        if kinds.isEmpty { close() } else { arm(at: now) }
    }

    mutating func close() {
        eventSource.closed(kernel)
        (due, missed, retry) = (Self.never, [], RetryState())
    }

    mutating func repair(at now: Duration, asked: Bool) -> Set<Kind> {
        guard !kinds.isEmpty, retry.failure != nil, retry.isDue(at: now, asked: asked) else { return [] }
        arm(at: now)
        return kinds
    }

    /// Sets the timer to the next event. An event that was not read yet is lost by that, so the next `collect` reports
    /// all kinds instead.
    mutating func arm(at now: Duration) {
        guard !kinds.isEmpty else { return }
        if eventSource.file < 0 {
            let timer = kernel.makeClockTimer()
            guard timer >= 0 else { return retry.failed(Int(timer), at: now) }
            eventSource.file = timer
        }
        let second = kernel.clocks.real.components.seconds
        if second >= due { missed = kinds }
        let local = LocalTime(offset: kernel.secondsFromUTC)
        var next = Self.never
        if kinds.contains(.day) { next = min(next, local.midnight(after: second)) }
        if kinds.contains(.timeZone), let shift = local.shift(after: second) { next = min(next, shift) }
        let result = kernel.setClockTimer(eventSource.file, at: next)
        // ECANCELED: the clock was set before. The timer is set all the same.
        if result == -ECANCELED { missed = kinds }
        if result < 0, result != -ECANCELED { return lost(Int(-result), at: now) }
        due = next
        retry.isWhole()
    }

    private mutating func lost(_ number: Int, at now: Duration) {
        if number == Int(EBADF) { eventSource.file = -1 }
        eventSource.closed(kernel)
        retry.failed(number, at: now)
    }

    /// Reads the timer. Returns the kinds that may have changed.
    mutating func collect(at now: Duration) -> [Kind: Int] {
        if eventSource.file >= 0 { readTimer(at: now) }
        defer { missed = [] }
        return Dictionary(uniqueKeysWithValues: missed.intersection(kinds).map { ($0, 1) })
    }

    private mutating func readTimer(at now: Duration) {
        let buffer = TextBuffer(capacity: 8)
        let count = kernel.receive(eventSource.file, into: buffer.bytes)
        if count == -Int(EAGAIN) { return }
        missed = kinds
        if count != 8, count != -Int(ECANCELED) { return lost(-count, at: now) }
        arm(at: now)
        if eventSource.file >= 0 { eventSource.rang(at: now, pause: .milliseconds(10)) }
    }
}

/// Calculates the next change of the date and of the distance from UTC. Uses a function that returns that distance at a
/// second since 1970.
struct LocalTime {
    let offset: (Int64) -> Int

    /// Returns the local date, in days since 1970-01-01.
    func day(at second: Int64) -> Int {
        let local = second + Int64(offset(second))
        return Int(local >= 0 ? local / 86400 : (local - 86399) / 86400)
    }

    /// Returns the first second of another date.
    func midnight(after second: Int64) -> Int64 {
        first(after: second, by: second + 2 * 86400) { day(at: $0) != day(at: second) }
    }

    /// Returns the first second of another distance from UTC within 400 days; `nil` if there is none.
    func shift(after second: Int64) -> Int64? {
        let now = offset(second)
        // The shortest time between two shifts is about 30 days, for Ramadan in Morocco.
        for week in 0..<58 where offset(second + Int64(week + 1) * 7 * 86400) != now {
            return first(after: second + Int64(week) * 7 * 86400, by: second + Int64(week + 1) * 7 * 86400) {
                offset($0) != now
            }
        }
        return nil
    }

    private func first(after low: Int64, by high: Int64, _ isThere: (Int64) -> Bool) -> Int64 {
        var (low, high) = (low, high)
        while high - low > 1 {
            let middle = low + (high - low) / 2
            if isThere(middle) { high = middle } else { low = middle }
        }
        return high
    }
}
#endif

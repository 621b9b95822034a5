import Glibc
import Plimsoll
import PlimsollLifecycle

/// Watches for setting of the wall clock, for the next date and for the next shift of the time zone. Uses one timer,
/// which the kernel cancels when the clock is set (`TFD_TIMER_CANCEL_ON_SET` of timerfd_create(2)).
struct ClockWatch {
    typealias Kind = EnvironmentChange.Kind

    private(set) var bell = Bell(POLLIN)
    private(set) var mending = Mending()
    private var kinds: Set<Kind> = []
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

    mutating func close() { bell.closed(kernel) }

    mutating func repair(at now: Duration, asked: Bool) -> Set<Kind> {
        guard !kinds.isEmpty, mending.failure != nil, mending.isDue(at: now, asked: asked) else { return [] }
        arm(at: now)
        return kinds
    }

    /// Sets the timer to the next event.
    mutating func arm(at now: Duration) {
        guard !kinds.isEmpty else { return }
        if bell.file < 0 {
            let timer = kernel.makeClockTimer()
            guard timer >= 0 else { return mending.failed(Int(timer), at: now) }
            bell.file = timer
        }
        let second = kernel.clocks.real.components.seconds
        let local = LocalTime(offset: kernel.secondsFromUTC)
        var next = Self.never
        if kinds.contains(.day) { next = min(next, local.midnight(after: second)) }
        if kinds.contains(.timeZone), let shift = local.shift(after: second) { next = min(next, shift) }
        let result = kernel.setClockTimer(bell.file, at: next)
        // ECANCELED: the clock was set before. The timer is set all the same.
        if result < 0, result != -ECANCELED { lost(Int(-result), at: now) } else { mending.isWhole() }
    }

    private mutating func lost(_ number: Int, at now: Duration) {
        if number == Int(EBADF) { bell.file = -1 }
        bell.closed(kernel)
        mending.failed(number, at: now)
    }

    /// Reads the timer. Returns the kinds that may have changed.
    mutating func collect(at now: Duration) -> [Kind: Int] {
        guard bell.file >= 0 else { return [:] }
        let buffer = TextBuffer(capacity: 8)
        let count = kernel.receive(bell.file, into: buffer.bytes)
        if count == -Int(EAGAIN) { return [:] }
        if count != 8, count != -Int(ECANCELED) {
            lost(-count, at: now)
        } else {
            arm(at: now)
            if bell.file >= 0 { bell.rang(at: now, pause: .milliseconds(10)) }
        }
        return Dictionary(uniqueKeysWithValues: kinds.map { ($0, 1) })
    }
}

public import Plimsoll
import Synchronization

/// A source whose readings a test pushes.
///
/// The manager's loop turns for each reading at once, and between as often as the manager's pace asks, but at most fifty times a second. Under a
/// manual clock those turns all see the same time, so they decide nothing new; where time moves as well, ``whileSettled(_:)`` has one turn see both.
public final class ScriptedPressureSource: PressureSource {
    private struct State {
        var reading = PressureReading(at: .zero)
        /// Readings pushed and other calls for the loop to look, and how many of them there were when it last did.
        var calls = 0
        var answered = 0
        var footprint = Footprint()
        var isAsleep = false
        var holds = 0
        var isFailing = false
        var waiting: [CheckedContinuation<Void, Never>] = []

        var isSettled: Bool { isAsleep && answered == calls }

        /// Lets the loop turn unless it is held, and says whether it may.
        mutating func awake() -> Bool {
            isAsleep = holds > 0
            return !isAsleep
        }

        /// Holds the loop if it has seen all there is, and says whether it did.
        mutating func hold() -> Bool {
            if isSettled { holds += 1 }
            return isSettled
        }
    }

    private let state = Mutex(State())
    private let loop = Parker()

    /// The surroundings, for a test to set.
    public let surroundings = ScriptedEnvironmentSource()
    public var environment: (any EnvironmentSource)? { surroundings }

    /// A source that sees nothing until something is pushed.
    public init() {}

    public var capabilities: Capabilities {
        Capabilities(footing: .announced, signals: [.init("script", isLive: true, "readings pushed by a test")])
    }

    /// Makes `usage` of `limit` the reading, of which `available` can still be allocated; by default what is left.
    public func push(usage: ByteCount, limit: ByteCount, available: ByteCount? = nil) {
        push(PressureReading(at: .zero, boundary: .maximum, limit: limit, usage: usage, available: available, resident: usage))
    }

    /// Makes `reading` the one to be seen; its time is that of the manager's clock when it is read.
    public func push(_ reading: PressureReading) {
        state.withLock { state in
            state.reading = reading
            state.footprint = Footprint(resident: reading.resident, usage: reading.usage)
        }
        wake()
    }

    /// What the process is said to occupy from now on, as measured after an action.
    public func setFootprint(_ footprint: Footprint) { state.withLock { $0.footprint = footprint } }

    /// Whether reading fails from now on.
    public func fail(_ failing: Bool) {
        state.withLock { $0.isFailing = failing }
        wake()
    }

    /// Returns when the loop has seen the last reading pushed, and what else it was woken for, and waits for another. What it began on other threads may
    /// still run; what of that has ended and been reported, the loop has seen.
    public func settled() async {
        await withCheckedContinuation { continuation in
            let isSettled = state.withLock { state in
                if !state.isSettled { state.waiting.append(continuation) }
                return state.isSettled
            }
            if isSettled { continuation.resume() }
        }
    }

    /// Calls `change` when the loop is ``settled()``, and has it wait meanwhile: of all that changes it sees nothing or everything.
    ///
    /// ```swift
    /// await source.whileSettled {
    ///     clock.advance(by: .seconds(60))
    ///     source.push(usage: .mebibytes(500), limit: .mebibytes(512))
    /// }
    /// await source.settled()
    /// ```
    ///
    /// One by one, a turn between them would see the old reading a minute later, and may act on it. `change` must not wait for the loop.
    public func whileSettled(_ change: () -> Void) async {
        repeat { await settled() } while !state.withLock { $0.hold() }
        change()
        state.withLock { $0.holds -= 1 }
        loop.unpark()
    }

    public func read(at: Duration) throws(PressureSourceError) -> PressureReading {
        let (reading, isFailing) = state.withLock { state in
            state.answered = state.calls
            return (state.reading, state.isFailing)
        }
        if isFailing { throw PressureSourceError("the test made reading fail") }
        var stamped = reading
        stamped.at = at
        return stamped
    }

    public func wait(atMost limit: Duration) {
        let waiting = state.withLock { state in
            state.isAsleep = true
            guard state.isSettled else { return [] as [CheckedContinuation<Void, Never>] }
            defer { state.waiting = [] }
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
        repeat { loop.park(atMost: max(limit, .milliseconds(20))) } while state.withLock { !$0.awake() }
    }

    public func wake() {
        state.withLock { $0.calls += 1 }
        loop.unpark()
    }
    public func footprint() -> Footprint { state.withLock { $0.footprint } }
    public var rings: Bool { true }
}

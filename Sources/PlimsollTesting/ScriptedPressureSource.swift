public import Plimsoll
public import PlimsollLifecycle
import Synchronization

/// A pressure source with readings that a test pushes.
///
/// The manager's loop runs at once for each reading. Between readings, the loop runs at the manager's pace, but at
/// most fifty times a second. Under a manual clock those turns all see the same time, so they decide nothing new. If
/// time moves as well, use ``whileIdle(_:)`` so that one turn sees both changes.
public final class ScriptedPressureSource: PressureSource, EnvironmentProvider {
    private struct State {
        var reading = PressureReading(at: .zero)
        /// Number of wake-ups of the loop, by pushed readings and other calls, and the number seen at the loop's last
        /// reading.
        var calls = 0
        var answered = 0
        var footprint = Footprint()
        var isAsleep = false
        var holds = 0
        var isFailing = false
        var waiting: [CheckedContinuation<Void, Never>] = []

        var isIdle: Bool { isAsleep && answered == calls }

        /// Lets the loop run unless held. Returns true if the loop may run.
        mutating func awake() -> Bool {
            isAsleep = holds > 0
            return !isAsleep
        }

        /// Holds the loop if it is idle. Returns true if the loop was idle.
        mutating func hold() -> Bool {
            if isIdle { holds += 1 }
            return isIdle
        }
    }

    private let state = Mutex(State())
    private let loop = Parker()

    package let surroundings = ScriptedEnvironmentSource()
    package var environment: (any EnvironmentSource)? { surroundings }

    /// Sets the value of `kind` in the process's environment, which the manager's life cycle watches. Values are
    /// `absent` at first.
    public func set(_ kind: EnvironmentChange.Kind, _ value: EnvironmentValue?) { surroundings.set(kind, value) }

    /// Sets whether changes of the environment are found only when all values are read again, as after a freeze.
    public func setSilent(_ isSilent: Bool) { surroundings.setSilent(isSilent) }

    /// Creates a source without a reading.
    public init() {}

    public var capabilities: Capabilities {
        Capabilities(support: .announced, signals: [.init("script", isLive: true, "readings pushed by a test")])
    }

    /// Pushes a reading with `usage` of `limit`, and `available` bytes to allocate; by default the rest of the limit.
    public func push(usage: ByteCount, limit: ByteCount, available: ByteCount? = nil) {
        push(
            PressureReading(
                at: .zero, boundary: .maximum, limit: limit, usage: usage, available: available, resident: usage))
    }

    /// Pushes `reading`. Its time is replaced by the time of the manager's clock at the read.
    public func push(_ reading: PressureReading) {
        state.withLock { state in
            state.reading = reading
            state.footprint = Footprint(resident: reading.resident, usage: reading.usage)
        }
        wake()
    }

    /// Sets the footprint of the process that is measured after an action.
    public func setFootprint(_ footprint: Footprint) { state.withLock { $0.footprint = footprint } }

    /// Sets whether reads fail from now on.
    public func fail(_ failing: Bool) {
        state.withLock { $0.isFailing = failing }
        wake()
    }

    /// Waits until the loop has seen the last reading and all wake-ups, and is idle. Work on other threads may still
    /// run. The loop has seen any such work that has ended and was reported.
    public func waitUntilIdle() async {
        await withCheckedContinuation { continuation in
            let isIdle = state.withLock { state in
                if !state.isIdle { state.waiting.append(continuation) }
                return state.isIdle
            }
            if isIdle { continuation.resume() }
        }
    }

    /// Calls `change` when the loop is idle, and holds the loop meanwhile. The loop sees all changes of
    /// `change` at once.
    ///
    /// ```swift
    /// await source.whileIdle {
    ///     clock.advance(by: .seconds(60))
    ///     source.push(usage: .mebibytes(500), limit: .mebibytes(512))
    /// }
    /// await source.waitUntilIdle()
    /// ```
    ///
    /// With separate calls, a turn in between would see the old reading a minute later, and might act on that.
    /// `change` must not wait for the loop.
    public func whileIdle(_ change: () -> Void) async {
        repeat { await waitUntilIdle() } while !state.withLock { $0.hold() }
        change()
        state.withLock { $0.holds -= 1 }
        loop.unpark()
    }

    public func read(at: Duration) throws(PressureSourceError) -> PressureReading {
        let (reading, isFailing) = state.withLock { state in
            state.answered = state.calls
            return (state.reading, state.isFailing)
        }
        if isFailing { throw PressureSourceError("reading failed as the test requested") }
        var stamped = reading
        stamped.at = at
        return stamped
    }

    public func wait(atMost limit: Duration) {
        let waiting = state.withLock { state in
            state.isAsleep = true
            guard state.isIdle else { return [] as [CheckedContinuation<Void, Never>] }
            return exchange(&state.waiting, [])
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

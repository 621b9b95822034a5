import CPlimsollProcess

/// Where the edge gets its time; everything inside takes `at:`.
public struct Timekeeper: Sendable {
    /// Time since some fixed point; only differences mean anything.
    public let elapsed: @Sendable () -> Duration
    /// Time the host has slept since some fixed point. `elapsed` leaves it out.
    let asleep: @Sendable () -> Duration
    /// Time of day, since 1970 (`CLOCK_REALTIME`). It may be set, and jumps then: only to compare with what an earlier process wrote down.
    let wall: @Sendable () -> Duration
    /// Has its argument called after each step of a time that is moved by hand; `nil` for time that passes by itself.
    let onStep: (@Sendable (@escaping @Sendable () -> Void) -> Void)?

    /// Time by `clock` since now.
    public init(_ clock: some Clock<Duration>) {
        let start = clock.now
        self.init(elapsed: { start.duration(to: clock.now) })
    }

    /// Time as `elapsed` tells it.
    public init(elapsed: @escaping @Sendable () -> Duration) { self.init(elapsed: elapsed, asleep: { .zero }, onStep: nil) }

    package init(
        elapsed: @escaping @Sendable () -> Duration, asleep: @escaping @Sendable () -> Duration,
        onStep: (@Sendable (@escaping @Sendable () -> Void) -> Void)?,
        wall: @escaping @Sendable () -> Duration = { .nanoseconds(plimsoll_wall_clock()) }
    ) {
        self.elapsed = elapsed
        self.asleep = asleep
        self.onStep = onStep
        self.wall = wall
    }

    /// The machine's running time: it stands still while the host sleeps (`CLOCK_MONOTONIC`).
    public static var running: Timekeeper {
        let awake = SuspendingClock(), always = ContinuousClock()
        let start = (awake: awake.now, always: always.now)
        return Timekeeper(
            elapsed: { start.awake.duration(to: awake.now) },
            // CLOCK_BOOTTIME less CLOCK_MONOTONIC.
            asleep: { start.always.duration(to: always.now) - start.awake.duration(to: awake.now) },
            onStep: nil)
    }
}

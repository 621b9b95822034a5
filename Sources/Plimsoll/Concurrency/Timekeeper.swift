import CPlimsollProcess

/// The source of time at the outer edge of the library; all inner code takes `at:`.
package struct Timekeeper: Sendable {
    /// Returns the time since some fixed point; only differences are meaningful.
    package let elapsed: @Sendable () -> Duration
    /// Returns the time that the host has slept since some fixed point. `elapsed` excludes that time.
    package let asleep: @Sendable () -> Duration
    /// Returns the time of day, since 1970 (`CLOCK_REALTIME`). Jumps when the clock is set. Use only to compare
    /// with times that an earlier process stored.
    package let wall: @Sendable () -> Duration
    /// Registers a closure to call after each step of a manual clock; `nil` for real time.
    let onStep: (@Sendable (@escaping @Sendable () -> Void) -> Void)?

    /// Creates a timekeeper that reads `elapsed`.
    package init(elapsed: @escaping @Sendable () -> Duration) {
        self.init(elapsed: elapsed, asleep: { .zero }, onStep: nil)
    }

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

    /// The machine's running time, which excludes time that the host sleeps (`CLOCK_MONOTONIC`).
    package static var running: Timekeeper {
        let awake = SuspendingClock(), always = ContinuousClock()
        let start = (awake: awake.now, always: always.now)
        return Timekeeper(
            elapsed: { start.awake.duration(to: awake.now) },
            // CLOCK_BOOTTIME less CLOCK_MONOTONIC.
            asleep: { start.always.duration(to: always.now) - start.awake.duration(to: awake.now) },
            onStep: nil)
    }
}

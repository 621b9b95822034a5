/// Where the edge gets its time; everything inside takes `at:`.
public struct Timekeeper: Sendable {
    /// Time since some fixed point; only differences mean anything.
    public let elapsed: @Sendable () -> Duration

    /// Time by `clock` since now.
    public init(_ clock: some Clock<Duration>) {
        let start = clock.now
        elapsed = { start.duration(to: clock.now) }
    }

    /// Time as `elapsed` tells it.
    public init(elapsed: @escaping @Sendable () -> Duration) { self.elapsed = elapsed }

    /// The machine's running time: it stands still while the host sleeps (`CLOCK_MONOTONIC`).
    public static var running: Timekeeper { Timekeeper(SuspendingClock()) }
}

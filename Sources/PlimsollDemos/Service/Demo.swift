import Plimsoll

/// The demo on a real kernel: two groups, two processes, the same clients for both.
struct Demo {
    private let limit: ByteCount
    private let seconds: Double
    private let plan: TrafficPlan

    /// Interval between observations of both sides.
    private static let step = Duration.milliseconds(20)
    /// A slow (emulated) machine needs seconds to start a process.
    private static let patience = Duration.seconds(30)

    init(limit: ByteCount, seconds: Double) throws {
        self.limit = limit
        self.seconds = seconds
        plan = TrafficPlan(limit: limit, seconds: seconds)
    }

    /// Runs both sides.
    ///
    /// - Throws: `GroupMaker.Refusal` if no group can be made, `Failure` if the demo failed to complete.
    func run() throws -> (without: DemoRecord, with: DemoRecord) {
        let signals = SignalQueue()
        let start = SteadyClock.now
        let without = try DemoSide(isProtected: false, limit: limit, plan: plan, start: start)
        defer { without.cleanUp() }
        let with = try DemoSide(isProtected: true, limit: limit, plan: plan, start: start)
        defer { with.cleanUp() }

        Output.line(
            """
            One service twice, each under a limit of \(limit), for \(Text.number(seconds)) s: \(Int(plan.thumbsPerSecond)) thumbnails a second \
            from a cache without a limit, \(Int(plan.sessionsPerSecond)) new sessions a second of \(ByteCount(SessionStore.size)) \
            that live \(Text.number(plan.sessionLife.inSeconds)) s.
            """)
        try without.startTraffic(within: Self.patience)
        try with.startTraffic(within: Self.patience)

        var narrative = Narrative(limit: limit)
        let end = start + .seconds(seconds)
        while SteadyClock.now < end {
            let items = without.look() + with.look()
            narrative.tell(items, without.record, with.record, at: SteadyClock.now - start)
            if let signal = signals.next(within: Self.step), SignalQueue.endings.contains(signal) {
                throw Failure.failed("interrupted; both services are ended and their groups removed")
            }
        }
        with.end()
        without.end()
        return (without.record, with.record)
    }
}

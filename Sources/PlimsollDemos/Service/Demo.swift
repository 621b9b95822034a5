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
            let items = without.poll() + with.poll()
            narrative.report(items, without.record, with.record, at: SteadyClock.now - start)
            if let signal = signals.next(within: Self.step), SignalQueue.endings.contains(signal) {
                throw Failure.failed("interrupted; both services are ended and their groups removed")
            }
        }
        with.end()
        without.end()
        return (without.record, with.record)
    }
}

/// Prints the demo as it happens: a line a second and a line for each change. Purges and drops are counted, not
/// listed.
struct Narrative {
    struct Item {
        var at: Duration
        var side: String
        var text: String
        var purge: DemoRecord.Purge?
        var drop: DemoRecord.Drop?
    }

    let limit: ByteCount
    private var nextRow = Duration.zero
    private var purges: [DemoRecord.Purge] = []
    private var taken = ByteCount.zero

    private static let barWidth = 24

    init(limit: ByteCount) { self.limit = limit }

    mutating func report(_ items: [Item], _ without: DemoRecord, _ with: DemoRecord, at now: Duration) {
        for item in items {
            if let purge = item.purge { purges.append(purge) }
            if let drop = item.drop { taken = taken + drop.taken }
            if !item.text.isEmpty { Output.line(stamp(item.at) + Text.left(item.side, 7) + "  " + item.text) }
        }
        guard now >= nextRow else { return }
        nextRow = .seconds(now.inSeconds.rounded(.down) + 1)
        var row = stamp(now) + [without, with].map(column).joined(separator: "   ") + "  \(with.served) served"
        if let sample = with.samples.last {
            row += ", \(Text.mebibytes(sample.fixed)) MiB fixed, working set \(Text.mebibytes(sample.workingSet))"
        }
        if taken > .zero {
            row += ", the kernel reclaimed \(Text.mebibytes(taken)) MiB"
            taken = .zero
        }
        if !purges.isEmpty {
            let back = purges.reduce(ByteCount.zero) { $0 + max(.zero, $1.fall) }
            let longest = purges.map(\.took).max() ?? .zero
            row +=
                ", \(Text.mebibytes(back)) MiB released in \(purges.count) (longest \(Text.number(longest.milliseconds)) ms)"
            purges = []
        }
        Output.line(row)
    }

    private func stamp(_ at: Duration) -> String { Text.right(Text.number(at.inSeconds, decimals: 1), 6) + " s  " }

    private func column(_ record: DemoRecord) -> String {
        let usage = record.fate == .running ? record.samples.last?.usage ?? .zero : .zero
        let bar = Bar.draw(Double(usage.bytes) / Double(limit.bytes), width: Self.barWidth, marks: [(0.8, "|")])
        let text = record.fate == .running ? Text.right(Text.mebibytes(usage), 5) + " MiB" : Text.right("gone", 9)
        return "\(record.name) \(bar)\(text)"
    }
}

/// The demo where no group can be made: real decisions on a simulated service, whose memory is two numbers.
struct DemoSimulation {
    let limit: ByteCount
    let seconds: Double

    /// Simulated time between two readings.
    private static let step = Duration.milliseconds(20)
    /// Memory of a process without clients.
    private static let base = ByteCount.mebibytes(12)

    func run() -> (without: DemoRecord, with: DemoRecord) { (side(isProtected: false), side(isProtected: true)) }

    private func side(isProtected: Bool) -> DemoRecord {
        let plan = TrafficPlan(limit: limit, seconds: seconds)
        var record = DemoRecord(isProtected: isProtected)
        var decisions = PressureDecisions()
        var cache = ByteCount.zero, requests = 0.0
        var level = PressureLevel.normal
        var at = Duration.zero
        while at <= .seconds(seconds) {
            requests += (plan.thumbsPerSecond + plan.sessionsPerSecond) * Self.step.inSeconds
            let alive = min(at, plan.sessionLife).inSeconds * plan.sessionsPerSecond
            let live = ByteCount(Int(alive) * SessionStore.size)
            let grown = ByteCount(Int(plan.thumbsPerSecond * 0.6 * Self.step.inSeconds * Double(Thumbnail.meanSize)))
            let usage = Self.base + live + cache + grown
            if usage >= limit, !isProtected {
                record.samples.append(.init(at: at, usage: limit, fixed: limit, workingSet: limit))
                record.fate = .killed(at: at)
                return record
            }
            cache = cache + grown
            if isProtected {
                // Volatile: the kernel reclaims the excess over the limit; until then the cache counts as available.
                let taken = min(cache, max(.zero, usage - limit))
                cache = cache - taken
                if taken > .zero { record.drops.append(.init(at: at, taken: taken)) }
                let reading = PressureReading(
                    at: at, boundary: .maximum, limit: limit, usage: Self.base + live + cache,
                    workingSet: Self.base + live,
                    available: max(.zero, limit - Self.base - live))
                let assessed = decisions.decide(reading).assessment.level
                if assessed != level {
                    level = assessed
                    record.levels.append((at, level))
                }
            }
            let fixed = Self.base + live + (isProtected ? .zero : cache)
            record.samples.append(.init(at: at, usage: Self.base + live + cache, fixed: fixed, workingSet: fixed))
            record.noteServed(Int(requests), at: at)
            at += Self.step
        }
        record.fate = .survived
        return record
    }
}

import Plimsoll

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

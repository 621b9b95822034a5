import Plimsoll

@testable import PlimsollSupervisor

/// A simulation of units under one memory limit, with a real engine. Runs in steps of 50 ms of simulated time.
/// Decisions take effect with the delays of a real kernel.
struct SupervisorSimulation: Sendable {
    private(set) var engine: SupervisorEngine
    var units: [SimulatedUnit]
    /// The memory limit for all units together.
    var limit: ByteCount
    /// True if fleets report the time until memory is exhausted at the current growth of the units.
    var reportsTimeLeft = false
    private(set) var now = Duration.zero
    /// All decisions, in order.
    private(set) var decisions: [Decision] = []
    private(set) var journal: [AuditRecord] = []
    private var events: [Event] = []
    private var chance: UInt64
    private var nextEvaluation = Duration.zero
    private var lastLevel = PressureLevel.normal
    private var lines: [String]
    private var levels = ""
    private var hasEnded: Set<Int> = []

    static let step = Duration.milliseconds(50)

    private struct Event {
        var at: Duration
        var unit: Int
        var effect: Effect
    }

    private enum Effect {
        case suspended(Decision), notFrozen(Decision), reclaimed(Decision, ByteCount), released(ByteCount)
        case killed(Decision), gone(Decision, was: ByteCount), back
    }

    init(_ units: [SimulatedUnit], limit: ByteCount, policy: SupervisorPolicy = .standard, seed: UInt64 = 0) {
        (self.units, self.limit) = (units, limit)
        engine = SupervisorEngine(policy)
        chance = seed
        lines = units.map { _ in "" }
    }

    /// The fleet as the supervisor would see it. The level is `warning` from 85 % of the limit and `critical` from 95
    /// %. The shortfall is the usage above 80 %.
    var fleet: Fleet {
        let used = units.reduce(.zero) { $0 + $1.report.charge }
        let level: PressureLevel = used >= limit * 0.95 ? .critical : used >= limit * 0.85 ? .warning : .normal
        var fleet = Fleet(
            at: now, level: level, shortfall: level == .normal ? .zero : used - limit * 0.8, units: units.map(\.report))
        fleet.room = max(.zero, limit * 0.85 - used)
        if reportsTimeLeft {
            let growth = units.reduce(.zero) {
                $0 + ($1.report.state == .running || $1.report.state == .leaving ? $1.growth : .zero)
            }
            if growth > .zero { fleet.timeLeft = .seconds(Double(max(0, (limit - used).bytes)) / Double(growth.bytes)) }
        }
        return fleet
    }

    mutating func run(for time: Duration) {
        let end = now + time
        while now < end {
            advance()
            if now.wholeMicroseconds % 1_000_000 == 0 { draw() }
        }
    }

    /// The states over time: one line per unit, one character per second, and the levels below. `=` running, `!`
    /// warned, `b` leaving, `z` suspended, `x` ended, `.` stopped.
    var drawing: String {
        let width = units.map(\.report.name.count).max() ?? 0
        let all = zip(units.map(\.report.name), lines) + [("", levels)]
        return all.map { name, line in name + String(repeating: " ", count: width - name.count) + " " + line }.joined(
            separator: "\n")
    }

    /// Returns the line of one unit.
    func line(_ name: String) -> String { units.firstIndex { $0.report.name == name }.map { lines[$0] } ?? "" }

    private mutating func draw() {
        for index in units.indices { lines[index].append(hasEnded.contains(index) ? "x" : units[index].drawn) }
        hasEnded = []
        levels += fleet.level == .critical ? "#" : fleet.level == .warning ? "-" : "_"
    }

    private mutating func advance() {
        now += Self.step
        for index in units.indices where units[index].report.state == .running || units[index].report.state == .leaving {
            // A throttled unit grows at a quarter of its pace. Random variation keeps growth uneven.
            let pace = (units[index].report.isThrottled ? 0.25 : 1) * (0.8 + 0.4 * random()) / 20
            units[index].report.charge += units[index].growth * pace
        }
        var isNews = false
        while let index = events.firstIndex(where: { $0.at <= now }) {
            happen(events.remove(at: index))
            isNews = true
        }
        let fleet = fleet
        guard isNews || fleet.level != lastLevel || now >= nextEvaluation else { return }
        lastLevel = fleet.level
        for decision in engine.decide(fleet) {
            decisions.append(decision)
            journal.append(AuditRecord(decision, level: fleet.level, shortfall: fleet.shortfall))
            if !decision.isDryRun, let index = units.firstIndex(where: { $0.report.name == decision.unit }) {
                begin(decision, index)
            }
        }
        // Reports arrive once a second in any case.
        nextEvaluation = now + min(.seconds(1), engine.nextEvaluation(after: fleet) ?? .seconds(1))
    }

    // MARK: - Execution of decisions

    private mutating func begin(_ decision: Decision, _ index: Int) {
        switch decision.action {
        case .warn(let level): (units[index].report.notified, units[index].report.notifiedAt) = (level, now)
        case .release(let amount):
            if !units[index].habits.contains(.ignoresWarnings) { later(.milliseconds(200), index, .released(amount)) }
        case .share(let share): units[index].report.share = share
        case .background:
            units[index].enter(.leaving, at: now)
            units[index].report.backgroundSince = units[index].report.backgroundSince ?? now
            if units[index].habits.contains(.refusesToLeave) { units[index].report.tokens = 1 }
            learn(decision)
        case .suspend:
            units[index].enter(.suspending, at: now)
            if units[index].habits.contains(.neverFreezes) {
                later(.seconds(2), index, .notFrozen(decision))
            } else {
                later(.milliseconds(100), index, .suspended(decision))
            }
        case .resume(let reason):
            units[index].enter(.running, at: now)
            units[index].report.charge += units[index].reclaimed
            units[index].cache += units[index].reclaimed
            units[index].reclaimed = .zero
            if reason == .keepAlive { units[index].report.lastWoken = now }
            learn(decision)
        case .reclaim(let amount): later(.milliseconds(200), index, .reclaimed(decision, amount))
        case .throttle(let on):
            (units[index].report.isThrottled, units[index].report.throttledSince) = (on, on ? now : nil)
            learn(decision)
        case .end(.ask(let grace)):
            units[index].enter(.ending, at: now)
            later(units[index].habits.contains(.ignoresTerm) ? grace : .milliseconds(500), index, .killed(decision))
        case .end: happen(Event(at: now, unit: index, effect: .killed(decision)))
        case .start:
            units[index].restart(at: now)
            learn(decision)
        }
    }

    private mutating func happen(_ event: Event) {
        let index = event.unit
        switch event.effect {
        case .suspended(let decision):
            if units[index].report.state == .suspending { units[index].enter(.suspended, at: now) }
            learn(decision)
        case .notFrozen(let decision): learn(decision, failure: "the freeze was not confirmed")
        case .released(let amount):
            if units[index].report.state == .running || units[index].report.state == .leaving {
                _ = units[index].lose(amount)
            }
        case .reclaimed(let decision, let amount):
            let lost = units[index].report.state == .suspended ? units[index].lose(amount) : .zero
            units[index].reclaimed += lost
            learn(decision, relief: lost)
        case .killed(let decision):
            // The unit was asked first, and killed early, so the end has already happened.
            let isAsked = if case .end(.ask) = decision.action { true } else { false }
            if isAsked, units[index].report.state != .ending || units[index].report.since != decision.at { return }
            units[index].enter(.ending, at: now)
            // 0.15 s per GiB, as measured (K39).
            let charge = units[index].report.charge, time = Double(charge.bytes) / Double(1 << 30) * 0.15
            later(.seconds(time), index, .gone(decision, was: charge))
        case .gone(let decision, let charge):
            units[index].enter(.stopped, at: now)
            (units[index].report.charge, units[index].reclaimed, units[index].report.lastEnded) = (.zero, .zero, now)
            hasEnded.insert(index)
            learn(decision, relief: charge)
            if units[index].habits.contains(.comesStraightBack) { later(.seconds(1), index, .back) }
        case .back:
            units[index].report.relaunchGap = units[index].report.lastEnded.map { now - $0 }
            units[index].restart(at: now)
        }
    }

    private mutating func learn(_ decision: Decision, relief: ByteCount = .zero, failure: String? = nil) {
        let outcome = Outcome(decision, at: now, relief: relief, failure: failure)
        engine.learn(outcome)
        journal.append(AuditRecord(outcome, level: fleet.level, shortfall: fleet.shortfall))
        nextEvaluation = now
    }

    private mutating func later(_ delay: Duration, _ unit: Int, _ effect: Effect) {
        events.append(Event(at: now + delay, unit: unit, effect: effect))
    }

    /// Returns a number in `0..<1`, the same sequence for a given seed.
    private mutating func random() -> Double {
        chance = chance &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Double(chance >> 40) / Double(1 << 24)
    }
}

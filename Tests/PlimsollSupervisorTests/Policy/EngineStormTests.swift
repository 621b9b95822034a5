import Plimsoll
import PlimsollLifecycle
import PlimsollSupervisor
import PlimsollTesting
import TestSupport
import Testing

/// Random fleets whose units behave at random, with outcomes that come late, fail, or never come.
private struct EngineStorm {
    var generator: SeededGenerator
    var engine = SupervisorEngine()
    var units: [UnitReport]
    var now = Duration.zero
    let seed: UInt64
    /// True if all units are in the foreground and memory is critical all the time: then foreground units are ended,
    /// too.
    let isInFront: Bool

    init(seed: UInt64, isDryRun: Bool = false) {
        self.seed = seed
        generator = SeededGenerator(seed: seed)
        engine.policy.isDryRun = isDryRun
        units = []
        isInFront = seed % 4 == 0
        for number in 0..<Int.random(in: 1...12, using: &generator) {
            var report = unit(
                "u\(number)", ServiceUnit.Role.allCases.randomElement(using: &generator)!, UnitState.allCases.randomElement(using: &generator)!,
                Int.random(in: 0...500, using: &generator), importance: Int.random(in: -5...1005, using: &generator))
            report.suspension = ServiceUnit.Suspension.allCases.randomElement(using: &generator)!
            report.restart = ServiceUnit.Restart.allCases.randomElement(using: &generator)!
            report.exitsOnSuspend = chance(0.1)
            report.holdsLocks = chance(0.1)
            report.isSaved = chance(0.5)
            report.isWarnable = chance(0.8)
            if chance(0.3) { report.tokens = 2 }
            if chance(0.2) { report.tokensEnd = .seconds(Int.random(in: 0...100, using: &generator)) }
            if chance(0.2) { report.allowance = .seconds(Int.random(in: 0...60, using: &generator)) }
            if chance(0.2) { report.keepAlive = .seconds(1) }
            if chance(0.3) { report.backgroundSince = .zero }
            if chance(0.2) { report.relaunchGap = .seconds(1) }
            if chance(0.3) { report.dependencies = ["u\(Int.random(in: 0...12, using: &generator))", "u0"] }
            report.reclaimable = report.charge * Double.random(in: 0...1, using: &generator)
            if isInFront { (report.role, report.backgroundSince, report.state) = (.foreground, nil, .running) }
            units.append(report)
        }
    }

    mutating func chance(_ share: Double) -> Bool { Double.random(in: 0..<1, using: &generator) < share }

    /// Carries out a decision, or not, and reports the outcome, or not. Returns true if a failure, or the release of
    /// all memory, was reported.
    mutating func follow(_ decision: Decision) -> Bool {
        guard !decision.isDryRun, let index = units.firstIndex(where: { $0.name == decision.unit }) else { return false }
        let failure: String? = chance(0.2) ? "it failed" : nil
        let before = units[index].charge
        if failure == nil {
            switch decision.action {
            case .warn(let level): (units[index].notified, units[index].notifiedAt) = (level, now)
            case .release(let amount): units[index].charge -= min(units[index].charge, chance(0.5) ? amount : .zero)
            case .share(let share): units[index].share = share
            case .background: (units[index].state, units[index].since, units[index].backgroundSince) = (.leaving, now, now)
            case .suspend: (units[index].state, units[index].since) = (chance(0.8) ? .suspended : .suspending, now)
            case .resume: (units[index].state, units[index].since) = (.running, now)
            case .reclaim(let amount): units[index].charge -= min(units[index].charge, amount)
            case .throttle(let on): (units[index].isThrottled, units[index].throttledSince) = (on, on ? now : nil)
            case .end:
                (units[index].state, units[index].since) = (chance(0.7) ? .stopped : .ending, now)
                if units[index].state == .stopped { (units[index].charge, units[index].lastEnded) = (.zero, now) }
            case .start: (units[index].state, units[index].since, units[index].charge) = (.starting, now, .mebibytes(50))
            }
        }
        guard chance(0.9) else { return false }
        let relief = before - units[index].charge
        engine.learn(Outcome(decision, at: now, relief: relief, failure: failure))
        return failure != nil || relief >= before * 0.95
    }

    /// Advances the time and changes some units at random.
    mutating func pass() {
        now += .milliseconds(Int.random(in: 1...3000, using: &generator))
        for index in units.indices where chance(0.1) {
            units[index].charge = .mebibytes(Int.random(in: 0...500, using: &generator))
            units[index].reclaimable = units[index].charge * Double.random(in: 0...1, using: &generator)
            if !isInFront, chance(0.3) { (units[index].state, units[index].since) = (UnitState.allCases.randomElement(using: &generator)!, now) }
            if chance(0.3) { units[index].tokens = 0 }
        }
    }

    mutating func fleet() -> Fleet {
        let level: PressureLevel = isInFront || chance(0.6) ? .critical : chance(0.5) ? .warning : .normal
        return Fleet(
            at: now, level: level, shortfall: level == .normal ? .zero : .mebibytes(Int.random(in: 0...2000, using: &generator)), units: units)
    }
}

@Suite struct EngineStormTests {
    @Test func `C75 C77 C90 K33 K39 the order of victims holds for any behaviour of units`() async {
        var ends = 0, foregroundEnds = 0, decided = 0
        for seed in seeds(0..<1500) {
            // Gives other tests a turn on the cooperative pool's few threads.
            await giveWay()
            var storm = EngineStorm(seed: seed)
            var lastNotice: (unit: String, at: Duration)?
            var lastEnd: (unit: String, at: Duration, charge: ByteCount)?
            for _ in 0..<20 {
                storm.pass()
                let fleet = storm.fleet(), decisions = storm.engine.decide(fleet), policy = storm.engine.policy
                var thawed: Set<String> = []
                if let last = lastEnd, let now = fleet.units.first(where: { $0.name == last.unit }) {
                    if now.state == .starting || now.charge <= last.charge * 0.05 { lastEnd = nil }
                }
                for decision in decisions {
                    decided += 1
                    let report = fleet.units.first { $0.name == decision.unit }!
                    if report.state == .stopped { #expect(decision.action == .start, "seed \(seed): \(decision.words)") }
                    switch decision.action {
                    case .resume: thawed.insert(decision.unit)
                    case .warn, .release, .background:
                        if let last = lastNotice, last.unit != decision.unit {
                            #expect(fleet.at - last.at >= policy.noticeSpacing, "seed \(seed): notices too close")
                        }
                        lastNotice = (decision.unit, fleet.at)
                        #expect(report.state != .suspended && report.state != .suspending, "seed \(seed): a suspended unit was notified")
                    case .end(let ending):
                        ends += 1
                        if fleet.level == .normal { #expect(report.exitsOnSuspend, "seed \(seed): ended without a shortage") }
                        if case .ask = ending, report.state == .suspended || report.state == .suspending {
                            #expect(thawed.contains(decision.unit), "seed \(seed): a frozen unit was asked to end")
                        }
                        if ending == .killSuspended { #expect(report.state == .suspended && report.isSaved, "seed \(seed)") }
                        if let last = lastEnd { #expect(fleet.at - last.at >= policy.coolDown, "seed \(seed): two ends at once") }
                        lastEnd = (decision.unit, fleet.at, report.charge)
                        if report.role == .foreground, report.backgroundSince == nil, report.state != .suspended, report.state != .leaving {
                            foregroundEnds += 1
                        }
                    default: break
                    }
                }
                let end = decisions.first { $0.action.kind == .end }
                if let ended = fleet.units.first(where: { $0.name == end?.unit }), ended.role == .foreground, ended.backgroundSince == nil,
                    ended.state == .running || ended.state == .starting
                {
                    // A unit with a step that failed a moment ago does not count. All other frozen or background units
                    // must have ended before.
                    let before = fleet.units.filter {
                        $0.charge > .zero && ($0.state == .suspended || $0.role != .foreground && $0.state == .running)
                    }
                    let left = before.filter { unit in !storm.hasFailed(unit.name) && !fleet.units.contains { $0.dependencies.contains(unit.name) } }
                    #expect(left.isEmpty, "seed \(seed): \(ended.name) was ended in the foreground before \(left.map(\.name))")
                }
                #expect(decisions.count { $0.action.kind == .end } <= 1, "seed \(seed): two ends in one evaluation")
                for decision in decisions where storm.follow(decision) && decision.unit == lastEnd?.unit { lastEnd = nil }
            }
        }
        #expect(
            hasChosenSeed || ends > 1500 && foregroundEnds > 200 && decided > 15_000,
            "not exercised: \(ends) ends, \(foregroundEnds) in front, \(decided) decisions")
    }

    @Test func `a dry run only reports decisions`() {
        var said = 0
        for seed in seeds(0..<300) {
            var storm = EngineStorm(seed: seed, isDryRun: true)
            for _ in 0..<20 {
                storm.pass()
                let fleet = storm.fleet()
                for decision in storm.engine.decide(fleet) {
                    said += 1
                    #expect(decision.isDryRun, "seed \(seed)")
                    let isDone = storm.follow(decision)
                    #expect(!isDone)
                }
                #expect(fleet.units == storm.units, "seed \(seed)")
            }
        }
        if !hasChosenSeed { #expect(said > 1000) }
    }

    @Test func `an engine polled at the requested times has bounded evaluations`() {
        for seed in seeds(0..<300) {
            var storm = EngineStorm(seed: seed)
            var evaluations = 0
            while evaluations < 2000 {
                let fleet = Fleet(at: storm.now, level: .critical, shortfall: .mebibytes(100), units: storm.units)
                _ = storm.engine.decide(fleet)
                guard let wait = storm.engine.nextEvaluation(after: fleet) else { break }
                #expect(wait >= .milliseconds(50), "seed \(seed)")
                storm.now += wait
                evaluations += 1
                if storm.now > .seconds(120) { break }
            }
            // Four evaluations a second at most, for 120 s.
            #expect(evaluations < 700, "seed \(seed): \(evaluations) evaluations")
        }
    }
}

extension EngineStorm {
    /// Returns true for a unit with a step that failed or was never answered: the engine may pass over such a unit.
    func hasFailed(_ name: String) -> Bool { engine.isPassedOver(name, at: now) }
}

import Plimsoll
import PlimsollSupervisor
import PlimsollTesting
import TestSupport
import Testing

/// The division of the memory for caches among units.
@Suite struct DividingTests {
    private var engine: SupervisorEngine

    init() {
        var policy = SupervisorPolicy()
        policy.division = .byWorth
        engine = SupervisorEngine(policy)
    }

    /// A unit whose caches miss in inverse proportion to their memory: the first `scale` mebibytes save half of `load`.
    private struct Service {
        var name: String
        var scale: Double
        /// Nanoseconds a second without memory.
        var load: Double
        /// Mebibytes that the caches hold.
        var held: Int
        var isTrusted = true
        /// Factor by which the unit exaggerates.
        var lies = 1.0
        var share: ProcessShare?

        func cost(at mebibytes: Double) -> Double { load / (1 + mebibytes / scale) }

        func report(at seconds: Double, room: Int) -> UnitReport {
            unit(name, .foreground, .running, held + 20) { report in
                (report.hasLink, report.share, report.trustsWorth) = (true, share, isTrusted)
                guard let share else { return }
                let most = Double(share.total) / 1_048_576
                let points = (1...Division.mostPoints).map { place in
                    let mebibytes = most * Double(place) / Double(Division.mostPoints)
                    return MissCurve.Point(bytes: Int(mebibytes * 1_048_576), misses: cost(at: mebibytes) * lies)
                }
                report.worth = WorthOffer(held: held << 20, room: room << 20, curve: MissCurve(requests: load * lies, points: points))
                report.worthAt = .seconds(seconds)
            }
        }
    }

    /// Runs seconds in which units hold as much as their shares allow, within a memory of `limit` mebibytes for caches.
    /// Returns the decisions.
    private mutating func run(
        _ services: inout [Service], limit: Int, seconds: ClosedRange<Int>, level: PressureLevel = .normal
    ) -> [Decision] {
        var decisions: [Decision] = []
        for second in seconds {
            let room = limit - services.reduce(0) { $0 + $1.held }
            // The supervisor's threshold lies above that of the units.
            let now = fleet(Double(second), level, room: room + 30, services.map { $0.report(at: Double(second), room: room) })
            for decision in engine.decide(now) {
                decisions.append(decision)
                guard case .share(let share) = decision.action, let index = services.firstIndex(where: { $0.name == decision.unit }) else { continue }
                services[index].share = share
            }
            // Units above their share release memory. Then units below their share take free memory, each as much as
            // the share allows.
            for index in services.indices {
                services[index].held = min(services[index].held, (services[index].share?.bytes).map { $0 >> 20 } ?? .max)
            }
            var free = limit - services.reduce(0) { $0 + $1.held }
            for index in services.indices where free > 0 {
                let more = min(free, (services[index].share?.bytes).map { ($0 >> 20) - services[index].held } ?? free)
                services[index].held += max(0, more)
                free -= max(0, more)
            }
        }
        return decisions
    }

    private func cost(_ services: [Service]) -> Double { services.reduce(0) { $0 + $1.cost(at: Double($1.held)) } }

    private let four = [
        Service(name: "one", scale: 20, load: 1e6, held: 100), Service(name: "two", scale: 20, load: 2.5e7, held: 100),
        Service(name: "three", scale: 60, load: 1e6, held: 100), Service(name: "four", scale: 60, load: 4e6, held: 100),
    ]

    @Test mutating func `units are asked for the worth of memory, and get shares with nearly the least load time`() {
        var services = four
        let first = run(&services, limit: 400, seconds: 1...1)
        #expect(first.map(\.words) == ["one: share any", "two: share any", "three: share any", "four: share any"])
        let later = run(&services, limit: 400, seconds: 2...60)
        #expect(later.allSatisfy { $0.action.kind == .share } && services.reduce(0) { $0 + $1.held } > 390, "\(services.map(\.held))")
        // The least load time of all divisions in steps of ten mebibytes.
        var best = Double.infinity
        for one in stride(from: 0, through: 400, by: 10) {
            for two in stride(from: 0, through: 400 - one, by: 10) {
                for three in stride(from: 0, through: 400 - one - two, by: 10) {
                    let sizes = [one, two, three, 400 - one - two - three]
                    best = min(best, zip(services, sizes).reduce(0) { $0 + $1.0.cost(at: Double($1.1)) })
                }
            }
        }
        #expect(cost(services) < 1.05 * best, "\(services.map(\.held)): \(cost(services)), best \(best), at first \(cost(four))")
        #expect(run(&services, limit: 400, seconds: 61...120).count < 8, "shares settle")
    }

    @Test mutating func `no unit is bounded while memory is plentiful, and shares are lifted once memory is plentiful again`() {
        var services = four
        for index in services.indices { services[index].held = 30 }
        #expect(
            engine.decide(fleet(1, .normal, room: 300, services.map { $0.report(at: 1, room: 280) })).allSatisfy { $0.words.hasSuffix("share any") })
        for index in services.indices { services[index].share = ProcessShare(bytes: nil, total: 400 << 20) }
        #expect(engine.words(reading(services, 2, room: 280)) == [])
        for index in services.indices { services[index].held = 100 }
        #expect(
            engine.decide(reading(services, 3, room: 10)).contains { if case .share(let share) = $0.action { share.bytes != nil } else { false } })
        for index in services.indices { (services[index].share, services[index].held) = (ProcessShare(bytes: 30 << 20, total: 400 << 20), 30) }
        // Free memory of half as much again does not count as plentiful yet.
        #expect(!engine.words(reading(services, 4, room: 60)).contains("one: share any"))
        #expect(engine.words(reading(services, 6, room: 280)) == ["one: share any", "two: share any", "three: share any", "four: share any"])
    }

    @Test mutating func `shares are lifted when a reload ends the division, at any level`() {
        var services = four
        for index in services.indices { services[index].share = ProcessShare(bytes: 30 << 20, total: 400 << 20) }
        engine.policy.division = .proportional
        var now = reading(services, 1, room: 10)
        now.level = .warning
        #expect(engine.words(now) == ["one: share any", "two: share any", "three: share any", "four: share any"])
        for index in services.indices { services[index].share?.bytes = nil }
        #expect(engine.words(reading(services, 2, room: 10)) == [])
    }

    private func reading(_ services: [Service], _ seconds: Double, room: Int) -> Fleet {
        fleet(seconds, .normal, room: room, services.map { $0.report(at: seconds, room: room) })
    }

    @Test mutating func `a shortage is handled before any curve is read`() {
        var services = four
        _ = run(&services, limit: 400, seconds: 1...2)
        let shares = services.map(\.share)
        #expect(!run(&services, limit: 400, seconds: 3...20, level: .warning).contains { $0.action.kind == .share })
        #expect(services.map(\.share) == shares)
        #expect(run(&services, limit: 400, seconds: 21...30).contains { $0.action.kind == .share }, "and then shares move")
    }

    @Test mutating func `a unit with false figures gains at most a twentieth, and a trusted unit is believed`() {
        for isTrusted in [false, true] {
            var services = four
            for index in services.indices { services[index].lies = index == 0 ? 1e6 : 1 }
            services[0].isTrusted = isTrusted
            engine = SupervisorEngine(engine.policy)
            // Each unit is entitled to a quarter: the amount that each holds while memory is plentiful.
            for decision in engine.decide(reading(services, 1, room: 300)) {
                guard case .share(let share) = decision.action else { continue }
                services.firstIndex { $0.name == decision.unit }.map { services[$0].share = share }
            }
            #expect(engine.words(reading(services, 2, room: 300)) == [])
            let entitled = 100.0 / 400
            _ = run(&services, limit: 400, seconds: 3...80)
            let part = Double(services[0].held) / 400
            if isTrusted { #expect(part > 0.5, "\(services.map(\.held))") } else { #expect(part <= entitled + 0.051, "\(services.map(\.held))") }
        }
    }

    @Test mutating func `a unit without trust gains no more by withholding a curve`() {
        var services = four
        (services[0].isTrusted, services[0].held) = (false, 0)
        for index in services.indices { services[index].share = ProcessShare(bytes: nil, total: 400 << 20) }
        _ = engine.decide(reading(services, 1, room: 300))
        services[1].held = 200
        for second in 2...20 {
            var now = reading(services, Double(second), room: 0)
            now.units[0].worth = WorthOffer(held: 0, room: 0, curve: MissCurve(requests: 1e18, points: [], isReliable: false))
            for decision in engine.decide(now) {
                guard case .share(let share) = decision.action else { continue }
                services.firstIndex { $0.name == decision.unit }.map { services[$0].share = share }
            }
        }
        // Half of an equal share would be an eighth.
        #expect(services[0].share?.bytes.map { $0 <= 21 << 20 && $0 > 0 } == true, "\(services.map { $0.share?.bytes })")
    }

    @Test mutating func `a new unit gets memory to learn a curve with, once requests arrive`() {
        var services = four
        _ = run(&services, limit: 400, seconds: 1...60)
        services.append(Service(name: "five", scale: 20, load: 1e6, held: 0))
        for isIdle in [true, false] {
            for second in 61...70 {
                var now = reading(services, Double(second + (isIdle ? 0 : 20)), room: 0)
                let load = isIdle ? 0 : 1e6
                if now.units[4].share != nil {
                    now.units[4].worth = WorthOffer(held: 0, room: 0, curve: MissCurve(requests: load, points: [], isReliable: false))
                }
                for decision in engine.decide(now) {
                    guard case .share(let share) = decision.action else { continue }
                    services.firstIndex { $0.name == decision.unit }.map { services[$0].share = share }
                }
            }
            let share = (services[4].share?.bytes ?? 0) >> 20
            #expect(isIdle ? share == 0 : share >= 39, "\(isIdle): \(services.map { $0.share?.bytes })")
        }
    }

    @Test mutating func `senseless numbers lead to shares within bounds`() {
        var services = four
        _ = run(&services, limit: 400, seconds: 1...1)
        for (second, change) in zip(2..., [(Int.max, Int.max, 0.0), (.min, .min, .infinity), (1 << 60, 0, .nan), (0, 1 << 60, -1)]) {
            var fleet = reading(services, Double(second), room: 10)
            fleet.units[0].worth = WorthOffer(
                held: change.0, room: change.1, curve: MissCurve(requests: change.2, points: [.init(bytes: change.0, misses: change.2)]))
            for decision in engine.decide(fleet) {
                guard case .share(let share) = decision.action, let bytes = share.bytes else { continue }
                #expect(bytes >= 0 && bytes <= 1 << 51, "\(decision)")
            }
        }
    }

    @Test mutating func `a unit without a report, a link or a running process keeps the share`() {
        var services = four
        _ = run(&services, limit: 400, seconds: 1...10)
        var fleet = reading(services, 11, room: 10)
        (fleet.units[0].worth, fleet.units[1].hasLink) = (nil, false)
        fleet.units[2].state = .suspended
        #expect(!engine.decide(fleet).contains { ["one", "two", "three"].contains($0.unit) && $0.action.kind == .share })
        fleet = reading(services, 12, room: 10)
        for index in 1...3 { fleet.units[index].hasLink = false }
        #expect(engine.words(fleet) == ["one: share any"], "with one unit there is nothing to divide")
    }

    @Test mutating func `an evaluation is due for units that could not be asked, and for reports that came too soon`() {
        var services = four
        var now = reading(services, 1, room: 10)
        now.room = nil
        #expect(engine.words(now) == [] && engine.nextEvaluation(after: now) == .seconds(1), "no reading of the room yet")
        _ = run(&services, limit: 400, seconds: 2...3)
        now = reading(services, 3.5, room: 0)
        #expect(engine.words(now) == [] && engine.nextEvaluation(after: now) == .milliseconds(500))
        for index in now.units.indices { now.units[index].worthAt = .seconds(3) }
        #expect(engine.words(now) == [] && engine.nextEvaluation(after: now) ?? .seconds(9) > .seconds(1), "no new reports")
    }

    @Test func `without the policy no unit is asked`() {
        var engine = SupervisorEngine()
        #expect(engine.words(reading(four, 1, room: 10)) == [])
    }
}

import Plimsoll
import PlimsollSupervisor
import Testing

/// Tests of the bounds of the division of memory: amounts, times, and the least change that is told.
@Suite struct DividingBoundsTests {
    private var engine: SupervisorEngine

    init() {
        var policy = SupervisorPolicy()
        policy.division = .byWorth
        engine = SupervisorEngine(policy)
    }

    /// A curve that nothing can be concluded from.
    private static let unknown = MissCurve(requests: 0, points: [], isReliable: false)

    /// Returns a report of a unit whose caches hold `held` bytes and that was told the share `told`.
    private func holder(
        _ name: String, _ held: Int, told: Int? = nil, at seconds: Double, change: (inout UnitReport) -> Void = { _ in }
    ) -> UnitReport {
        unit(name, .foreground, since: 0) {
            ($0.charge, $0.hasLink, $0.trustsWorth) = (ByteCount(held), true, true)
            $0.share = ProcessShare(bytes: told, total: 1 << 30)
            $0.worth = WorthOffer(held: held, room: 1 << 40, curve: Self.unknown)
            $0.worthAt = .seconds(seconds)
            change(&$0)
        }
    }

    /// Returns reports of two units, `a` and `b`, that hold and were told the same amounts.
    private func pair(_ held: Int, told: Int? = nil, at seconds: Double) -> [UnitReport] {
        ["a", "b"].map { holder($0, held, told: told, at: seconds) }
    }

    private func seen(_ seconds: Double, room: Int, _ units: [UnitReport]) -> Fleet {
        var now = fleet(seconds, .normal, units)
        now.room = ByteCount(room)
        return now
    }

    /// Returns the shares told, in bytes, by unit; -1 for no bound.
    private mutating func shares(_ fleet: Fleet) -> [String: Int] {
        var found: [String: Int] = [:]
        for decision in engine.decide(fleet) {
            guard case .share(let share) = decision.action else { continue }
            found[decision.unit] = share.bytes ?? -1
        }
        return found
    }

    private static let mib = 1 << 20

    @Test(arguments: [(7, 7), (0, 0), (-3, 0), (Int.max, 1 << 50)])
    mutating func `the memory divided is the room and all that caches hold, within the charge of their unit`(
        room: Int, counted: Int
    ) {
        func held(_ name: String, _ charge: Int, _ held: Int?) -> UnitReport {
            unit(name, .foreground) {
                ($0.charge, $0.hasLink) = (ByteCount(charge), true)
                $0.worth = held.map { WorthOffer(held: $0, room: 0, curve: Self.unknown) }
            }
        }
        let units = [
            held("a", 100, nil), held("b", 100, 60), held("c", 100, 200), held("d", 100, -5), held("e", -1, nil),
            held("f", Int.max, Int.max),
        ]
        let decisions = engine.decide(seen(1, room: room, units))
        #expect(decisions.map(\.unit) == units.map(\.name))
        let total = counted + 260 + (1 << 50)
        for decision in decisions { #expect(decision.action == .share(ProcessShare(bytes: nil, total: total))) }
    }

    @Test(arguments: [(0, true), (-1, true), (1, false)])
    mutating func `memory is divided once at most an eighth of the held amount is free, by either reading`(
        more: Int, isDivided: Bool
    ) {
        let free = 50 * Self.mib + more, all = 1 << 40
        for (room, ownRoom) in [(free, all), (all, free)] {
            let units = ["a", "b"].map { holder($0, 200 * Self.mib, at: 3) { $0.worth?.room = ownRoom } }
            var fresh = self
            let told = fresh.shares(seen(3, room: room, units))
            #expect(told.keys.sorted() == (isDivided ? ["a", "b"] : []) && !told.values.contains(-1))
        }
    }

    @Test mutating func `an eighth is counted to the byte`() {
        let units = [holder("a", 200 * Self.mib - 1, at: 3), holder("b", 200 * Self.mib, at: 3)]
        let told = shares(seen(3, room: 50 * Self.mib, units))
        #expect(told.isEmpty, "\(told)")
    }

    @Test mutating func `memory stays divided until more than half of the held amount is free, and is then free`() {
        let held = 200 * Self.mib
        var told = shares(seen(3, room: 50 * Self.mib, pair(held, at: 3)))
        #expect(told == ["a": 225 * Self.mib, "b": 225 * Self.mib])
        told = shares(seen(3, room: 50 * Self.mib, pair(held, at: 3)))
        #expect(told.isEmpty, "once at one time")
        told = shares(seen(4, room: held, pair(held, told: 225 * Self.mib, at: 4)))
        #expect(told == ["a": 300 * Self.mib, "b": 300 * Self.mib])
        told = shares(seen(5, room: held + 1, pair(held, told: 300 * Self.mib, at: 5)))
        #expect(told == ["a": -1, "b": -1])
        told = shares(seen(6, room: 50 * Self.mib + 1, pair(held, at: 6)))
        #expect(told.isEmpty, "\(told)")
    }

    @Test(arguments: [(0, true), (1, false)])
    mutating func `a share is told anew from a change by a 64th of the memory`(less: Int, isTold: Bool) {
        // 512 MiB are divided evenly, so the change is by 8 MiB, or less.
        let units = pair(240 * Self.mib, told: 248 * Self.mib + less, at: 3)
        let told = shares(seen(3, room: 32 * Self.mib, units))
        let expected: [String: Int] = isTold ? ["a": 256 * Self.mib, "b": 256 * Self.mib] : [:]
        #expect(told == expected)
    }

    @Test(
        arguments: [(nil, 125), (-5, 125), (0, 125), (150, 175), (230, 215), (250, nil), (300, nil)]
            as [(Int?, Int?)])
    mutating func `memory that caches have left is still divided, as far as there is room to the line`(
        line: Int?, share: Int?
    ) {
        var told = shares(seen(3, room: 50 * Self.mib, pair(200 * Self.mib, at: 3)))
        #expect(told == ["a": 225 * Self.mib, "b": 225 * Self.mib])
        var later = seen(4, room: 50 * Self.mib, pair(100 * Self.mib, told: 225 * Self.mib, at: 4))
        later.roomToLine = line.map { .mebibytes($0) }
        told = shares(later)
        let bytes = share.map { $0 * Self.mib }
        #expect(told["a"] == bytes && told["b"] == bytes, "\(told)")
    }

    @Test(arguments: [nil, -5, 0] as [Int?])
    mutating func `without room the memory divided is the amount held, to the byte`(line: Int?) {
        let first = shares(seen(3, room: 50 * Self.mib, pair(200 * Self.mib, at: 3)))
        #expect(first.count == 2)
        let held = 100 * Self.mib
        let units = [
            holder("a", held + 1, told: 225 * Self.mib, at: 4), holder("b", held, told: 225 * Self.mib, at: 4),
        ]
        var later = seen(4, room: -7, units)
        later.roomToLine = line.map { ByteCount($0) }
        let told = shares(later)
        #expect(told == ["a": held, "b": held])
    }

    @Test mutating func `only units that were asked and have answered get shares`() {
        let units = [
            holder("a", 200 * Self.mib, at: 3), holder("b", 200 * Self.mib, at: 3),
            holder("unasked", 0, at: 3) { $0.share = nil }, holder("silent", 0, at: 3) { $0.worth = nil },
        ]
        let words = engine.words(seen(3, room: 50 * Self.mib, units))
        #expect(words == ["unasked: share any", "a: share 225 MiB", "b: share 225 MiB"])
    }

    @Test mutating func `a unit with another decision waits for a share with the others`() {
        #expect(engine.words(fleet(0, .normal, [])) == [])
        var units = ["a", "b"].map { unit($0, .foreground) { $0.hasLink = true } }
        (units[0].notified, units[0].notifiedAt) = (.critical, .zero)
        #expect(engine.words(seen(1, room: 0, units)) == ["a: warn normal"])
        (units[0].notified, units[0].notifiedAt) = (.normal, .seconds(1))
        #expect(engine.words(seen(2, room: 0, units)) == ["a: share any", "b: share any"])
    }

    @Test mutating func `the reason names the load time that the best shares save`() {
        let size = 50 * Self.mib
        // The first 50 MiB of one unit save all loads, and no memory of the other saves any.
        let loop = MissCurve(requests: 1e6, points: [.init(bytes: size, misses: 0)])
        let scan = MissCurve(requests: 1e6, points: [.init(bytes: size, misses: 1e6)])
        let units = [
            holder("loop", 1, at: 3) { $0.worth?.curve = loop },
            holder("scan", 400 * Self.mib, at: 3) { $0.worth?.curve = scan },
        ]
        let decisions = engine.decide(seen(3, room: 0, units))
        #expect(decisions.map(\.unit) == ["loop", "scan"])
        for decision in decisions { #expect(decision.reason.contains("save 100.0 % of the load time")) }
    }

    // MARK: Trust

    private func isNear(_ bytes: Int?, _ mebibytes: Double) -> Bool {
        bytes.map { abs(Double($0) - mebibytes * Double(Self.mib)) < 4096 } ?? false
    }

    private func untrusted(_ amounts: [(name: String, mebibytes: Int)], at seconds: Double) -> [UnitReport] {
        amounts.map { unit in holder(unit.name, unit.mebibytes * Self.mib, at: seconds) { $0.trustsWorth = false } }
    }

    @Test mutating func `without a time of plenty each unit may hold an equal part, and a twentieth more`() {
        let told = shares(seen(3, room: 0, untrusted([("a", 300), ("b", 100)], at: 3)))
        #expect(isNear(told["a"], 220) && isNear(told["b"], 180), "\(told)")
    }

    @Test mutating func `units are entitled to the amount held in plenty, and a newcomer to an equal part`() {
        var told = shares(seen(1, room: 1 << 40, untrusted([("a", 300), ("b", 100)], at: 1)))
        #expect(told.isEmpty, "\(told)")
        told = shares(seen(3, room: 0, untrusted([("a", 300), ("b", 100), ("c", 0)], at: 3)))
        // 400 MiB are divided. The entitlements of 300, 100 and 133.3 MiB are scaled to that.
        #expect(isNear(told["a"], 245) && isNear(told["b"], 95) && isNear(told["c"], 60), "\(told)")
    }

    @Test mutating func `a unit that held the only byte in plenty is entitled to all memory`() {
        let plenty = [("a", 1), ("b", 0)].map { unit in holder(unit.0, unit.1, at: 1) { $0.trustsWorth = false } }
        var told = shares(seen(1, room: 1 << 40, plenty))
        #expect(told.isEmpty, "\(told)")
        told = shares(seen(3, room: 0, untrusted([("a", 300), ("b", 100)], at: 3)))
        #expect(isNear(told["a"], 380) && isNear(told["b"], 20), "\(told)")
    }

    @Test(arguments: [(0.0, false, 0), (0.5, false, 100), (1, false, 100), (2, false, 100), (1, true, 0)])
    mutating func `a newcomer gets half of an equal part to learn, once requests arrive`(
        requests: Double, isReliable: Bool, share: Int
    ) {
        let curve = MissCurve(requests: requests, points: [], isReliable: isReliable)
        let units = [
            holder("old", 400 * Self.mib, at: 3), holder("new", 0, at: 3) { $0.worth?.curve = curve },
        ]
        let told = shares(seen(3, room: 0, units))
        #expect(told["new"] == share * Self.mib, "\(told)")
    }
}

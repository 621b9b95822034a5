import Plimsoll

/// The division of the memory for caches among units, by what memory is worth to their caches.
extension SupervisorEngine {
    /// A division of the memory for caches.
    struct Divided: Sendable, Hashable {
        var at: Duration
        var bytes: Int
    }

    /// Least time between two divisions.
    static let divisionInterval = Duration.seconds(1)
    /// Least change of a share that is told, as part of the memory divided.
    static let leastShareChange = 1.0 / 64
    /// Most that a unit gains by its word unless trusted, as part of the memory divided.
    static let mostGain = 1.0 / 20
    /// Room, as part of the memory that caches hold, from which on memory is divided, and beyond which memory is
    /// plentiful again.
    private static let tight = 1.0 / 8, plentiful = 1.0 / 2

    /// Asks units for the worth of memory to their caches, and divides the memory for caches once that is nearly used
    /// up.
    mutating func divide(_ pass: inout DecisionPass) {
        // A dry run has no links of its own.
        guard !policy.isDryRun else { return }
        guard policy.division == .byWorth else { return endDivision(&pass) }
        let linked = pass.units.indices.filter { pass.units[$0].report.hasLink && pass.units[$0].runs }
        // No event tells that memory is not short.
        if linked.contains(where: { pass.units[$0].report.share == nil }) {
            pass.remind(at: pass.at + Self.divisionInterval)
        }
        // A shortage is answered first: curves tell nothing of a burst. A unit that just got another decision has its
        // share with the others, next time.
        guard pass.level == .normal, let room = pass.fleet.room, !linked.contains(where: { pass.units[$0].isTaken })
        else { return }
        let total = linked.reduce(min(max(0, room.bytes), Division.mostBytes)) { $0 + Self.held(pass.units[$1].report) }
        for index in linked where pass.units[index].report.share == nil {
            pass.record(
                .share(ProcessShare(bytes: nil, total: total)), to: index, "memory for caches is divided by its worth")
        }
        let offering = linked.filter { pass.units[$0].report.share != nil && pass.units[$0].report.worth != nil }
        let held = offering.map { Self.held(pass.units[$0].report) }, sum = held.reduce(0, +)
        let free = min(room.bytes, offering.map { pass.units[$0].report.worth?.room ?? 0 }.max() ?? 0)
        let isTight = Double(free) <= Double(sum) * (divided == nil ? Self.tight : Self.plentiful)
        guard offering.count > 1, isTight else { return leaveOpen(offering, held, total, &pass) }
        let news = offering.compactMap { pass.units[$0].report.worthAt }.max() ?? .zero
        if let last = divided?.at, pass.at >= last {
            guard news > last else { return }
            guard pass.at >= last + Self.divisionInterval else { return pass.remind(at: last + Self.divisionInterval) }
        }
        // Memory that some caches have left for others is still to be divided, though readings may keep that for a burst.
        let left = min(max(0, pass.fleet.roomToLine?.bytes ?? 0), Division.mostBytes)
        let budget = max(sum + max(0, free), min(divided?.bytes ?? 0, sum + left))
        divided = Divided(at: pass.at, bytes: budget)
        let holders = holders(offering, held, budget, &pass)
        let before = zip(offering, held).map { pass.units[$0].report.share?.bytes ?? $1 }
        let result = Division.next(holders, from: before, budget: budget)
        for (place, index) in offering.enumerated() {
            let bytes = result.shares[place], told = pass.units[index].report.share
            let change = told?.bytes.map { Double(abs(bytes - $0)) / Double(max(1, budget)) } ?? 1
            guard change >= Self.leastShareChange else { continue }
            let percent = (result.gain * 100).rounded()
            pass.record(
                .share(ProcessShare(bytes: bytes, total: total)), to: index,
                "the caches of all units use the memory that there is, and the unit's hold \(ByteCount(held[place])); the best shares save \(percent) % of the load time that memory can save"
            )
        }
    }

    /// Lifts all shares, because memory is plentiful. What units hold then, they have taken from no other.
    private mutating func leaveOpen(_ offering: [Int], _ held: [Int], _ total: Int, _ pass: inout DecisionPass) {
        divided = nil
        for (index, held) in zip(offering, held) {
            pass.units[index].memory.entitled = held
            guard pass.units[index].report.share?.bytes != nil else { continue }
            pass.record(.share(ProcessShare(bytes: nil, total: total)), to: index, "memory for caches is free again")
        }
    }

    /// Lifts all shares of an earlier policy, because memory is no longer divided.
    private mutating func endDivision(_ pass: inout DecisionPass) {
        divided = nil
        for index in pass.units.indices where !pass.units[index].isTaken {
            guard let share = pass.units[index].report.share, share.bytes != nil else { continue }
            pass.record(
                .share(ProcessShare(bytes: nil, total: share.total)), to: index,
                "memory for caches is no longer divided")
        }
    }

    /// Returns the units as holders. A unit without trust gains little beyond what its caches are entitled to.
    private func holders(
        _ offering: [Int], _ held: [Int], _ budget: Int, _ pass: inout DecisionPass
    ) -> [Division.Holder] {
        for index in offering where pass.units[index].memory.entitled == nil {
            pass.units[index].memory.entitled = budget / offering.count
        }
        let entitled = offering.map { Double(pass.units[$0].memory.entitled ?? 0) }
        let sum = max(1, entitled.reduce(0, +))
        return offering.indices.map { place in
            let report = pass.units[offering[place]].report
            let most = (entitled[place] / sum + Self.mostGain) * Double(budget), curve = report.worth?.curve
            let bound = report.trustsWorth ? Int.max : Int(most)
            // A newcomer needs some memory to learn what memory is worth.
            let isNew = curve.map { !$0.isReliable && $0.requests > 0 } ?? false
            let least = isNew ? min(bound, budget / (2 * offering.count)) : 0
            return Division.Holder(held: held[place], curve: curve, loadTime: 1, least: least, most: bound)
        }
    }

    /// Bytes that the unit's caches hold: not more than the kernel charges to the unit.
    private static func held(_ report: UnitReport) -> Int {
        let charge = min(max(0, report.charge.bytes), Division.mostBytes)
        return report.worth.map { min(max(0, $0.held), charge) } ?? charge
    }
}

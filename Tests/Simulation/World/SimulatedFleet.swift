import CSimulatedThreads
import Plimsoll
import PlimsollLifecycle

@testable import PlimsollLinux
@testable import PlimsollSupervisor

/// A machine with units and a supervisor: the real engine decides, and decisions take the time of a real kernel.
///
/// `@unchecked`: only the thread whose turn it is touches the members.
final class SimulatedFleet: @unchecked Sendable {
    private var units: [SimulatedUnit] = []
    private let limit: Int
    private var engine = SupervisorEngine()
    private var events: [(at: Duration, body: () -> Void)] = []
    private var groups: Int32 = 0
    private let loop = Parker()
    private(set) var isShort = false
    private var calmSince: Duration?
    private var isOver = false

    init(units count: Int) {
        let share = 160 << 20
        // The limit is less than the memory that all units may take together.
        limit = Int(Double(share * count) * Dice.between(0.3, 0.7))
        if Dice.chance(0.5) { engine.policy.division = .byWorth }
        for number in 0..<count {
            let role = ServiceUnit.Role.allCases[Dice.roll(ServiceUnit.Role.allCases.count)]
            units.append(SimulatedUnit("u\(number)", role, importance: Dice.roll(1001), limit: share, of: self))
        }
    }

    func newGroup() -> Int32 {
        groups += 1
        return groups
    }

    /// Runs all units and the supervisor for that time, and ends them.
    func run(for time: Duration) {
        for unit in units { unit.start() }
        rushLater()
        let end = SimulatedThreads.now + time
        while SimulatedThreads.now < end { turn() }
        isOver = true
        for unit in units where unit.process != nil {
            if let process = unit.process {
                simulated_thaw(process.group)
                process.order(.ending(grace: .seconds(10)))
            }
        }
        let last = SimulatedThreads.now + .seconds(60)
        while units.contains(where: { $0.process != nil }) {
            Invariants.check(SimulatedThreads.now < last, "a unit does not end within a minute")
            turn()
        }
    }

    /// Lets all clients come at once from time to time.
    private func rushLater() {
        later(Dice.after(mean: .seconds(3600))) { [self] in
            for unit in units where Dice.chance(0.8) { unit.process?.clients.unpark() }
            rushLater()
        }
    }

    /// Time for which memory of the machine has not been short.
    var calm: Duration { calmSince.map { SimulatedThreads.now - $0 } ?? .zero }

    // MARK: The kernel

    private var used: Int { units.reduce(0) { $0 + $1.charge } }

    /// Called from a unit's thread.
    func kernelMustAct() { loop.unpark() }

    /// Called from a unit's thread when the unit's process has ended without an order.
    func exited(_ unit: SimulatedUnit, _ process: UnitProcess) {
        events.append((SimulatedThreads.now, { [self] in gone(unit, process) }))
        loop.unpark()
    }

    private func actAsKernel() {
        for unit in units {
            guard let process = unit.process, process.isDoomed else { continue }
            Counts.killsByKernel += 1
            gone(unit, process)
        }
        while used > limit, let largest = units.max(by: { $0.charge < $1.charge }), let process = largest.process {
            Counts.killsByKernel += 1
            gone(largest, process)
        }
    }

    private func gone(_ unit: SimulatedUnit, _ process: UnitProcess) {
        guard unit.process === process else { return }
        simulated_thaw(process.group)
        simulated_kill(process.group)
        Pool.end(process.group)
        let before = unit.charge
        unit.ended()
        if let underWay = unit.underWay, underWay.action.kind == .end {
            complete(unit, relief: before)
        } else {
            complete(unit, failure: "the unit has ended")
        }
        guard !isOver else { return }
        if unit.report.restart != .always || Dice.chance(0.8) {
            later(Dice.between(.milliseconds(100), .seconds(5))) { [self] in
                if unit.process == nil, !isOver { unit.start() }
            }
        }
    }

    // MARK: The supervisor

    private func turn() {
        actAsKernel()
        while let index = events.firstIndex(where: { $0.at <= SimulatedThreads.now }) { events.remove(at: index).body() }
        for unit in units {
            unit.report.charge = ByteCount(unit.charge)
            unit.report.reclaimable = unit.report.state == .suspended ? ByteCount(unit.process?.memory.file ?? 0) : .zero
            if let killAt = unit.killAt, SimulatedThreads.now >= killAt, let process = unit.process {
                Counts.kills += 1
                gone(unit, process)
            }
        }
        let fleet = fleet
        isShort = fleet.level > .normal
        calmSince = isShort ? nil : calmSince ?? fleet.at
        if !isOver { for decision in engine.decide(fleet) { carryOut(decision) } }
        checkUnits(fleet)
        var wait = min(isShort ? .seconds(1) : .seconds(60), engine.nextEvaluation(after: fleet) ?? .seconds(60))
        if let next = events.map(\.at).min() { wait = min(wait, max(.zero, next - SimulatedThreads.now)) }
        if let next = units.compactMap(\.killAt).min() { wait = min(wait, max(.zero, next - SimulatedThreads.now)) }
        loop.park(atMost: wait)
    }

    private var fleet: Fleet {
        let used = used
        let level: PressureLevel =
            Double(used) >= Double(limit) * 0.95 ? .critical : Double(used) >= Double(limit) * 0.85 ? .warning : .normal
        var fleet = Fleet(
            at: SimulatedThreads.now, level: level,
            shortfall: level == .normal ? .zero : ByteCount(used - Int(Double(limit) * 0.8)), units: units.map(\.report))
        fleet.room = max(.zero, ByteCount(Int(Double(limit) * 0.85) - used))
        fleet.roomToLine = fleet.room
        return fleet
    }

    private func carryOut(_ decision: Decision) {
        guard let unit = units.first(where: { $0.name == decision.unit }) else { return }
        Invariants.trace("\(unit.name): \(decision.action), because \(decision.reason)")
        switch decision.action {
        case .warn, .release: break
        default:
            if unit.underWay != nil { complete(unit, failure: "replaced") }
            unit.underWay = decision
        }
        guard let process = unit.process else {
            guard decision.action == .start else { return complete(unit, failure: "the unit has ended") }
            unit.start()
            return complete(unit)
        }
        let now = SimulatedThreads.now
        switch decision.action {
        case .warn(let level):
            (unit.report.notified, unit.report.notifiedAt) = (level, now)
            process.order(.level(level))
            engine.learn(Outcome(decision, at: now, relief: .zero, failure: nil))
        case .release(let bytes):
            process.order(.release(bytes))
            engine.learn(Outcome(decision, at: now, relief: .zero, failure: nil))
        case .share(let share):
            Invariants.check(!isShort, "\(unit.name) got a share while memory was short")
            Invariants.check(
                (share.bytes ?? 0) >= 0 && share.bytes ?? 0 <= limit * 2, "\(unit.name) got a share of \(share)")
            unit.report.share = share
            process.order(.share(share))
            engine.learn(Outcome(decision, at: now, relief: .zero, failure: nil))
        case .background:
            unit.enter(.leaving)
            unit.report.suspensionRequestedAt = nil
            unit.report.backgroundSince = unit.report.backgroundSince ?? now
            process.order(.background(deadline: engine.policy.leaveTime))
            complete(unit)
        case .suspend:
            Counts.freezes += 1
            unit.enter(.suspending)
            simulated_freeze(process.group)
            if Dice.chance(0.02) {
                // The kernel does not confirm the freeze in time; the engine takes it back.
                later(.seconds(6)) { [self] in complete(unit, of: decision, failure: "not confirmed") }
            } else {
                later(Dice.between(.milliseconds(1), .milliseconds(200))) { [self] in
                    guard unit.process === process, unit.report.state == .suspending else { return }
                    unit.enter(.suspended)
                    complete(unit, of: decision)
                }
            }
        case .resume(let reason):
            simulated_thaw(process.group)
            unit.report.isSaved = false
            unit.enter(.running)
            if reason == .keepAlive {
                unit.report.lastWoken = now
            } else if reason != .ending {
                unit.report.isReady = false
                if unit.role == .foreground { unit.report.backgroundSince = nil }
                process.order(.resume)
            }
            complete(unit)
        case .reclaim(let bytes):
            later(.milliseconds(200)) { [self] in
                complete(unit, of: decision, relief: unit.process?.memory.reclaim(bytes.bytes) ?? 0)
            }
        case .throttle(let isThrottled):
            (unit.report.isThrottled, unit.report.throttledSince) = (isThrottled, isThrottled ? now : nil)
            complete(unit)
        case .end(.ask(let grace)):
            Counts.unitsAsked += 1
            simulated_thaw(process.group)
            unit.enter(.ending)
            unit.killAt = now + grace
            process.order(.ending(grace: grace))
        case .end(let ending):
            Counts.kills += 1
            if ending == .killSuspended {
                Counts.killsWhileSuspended += 1
                Invariants.check(unit.report.state == .suspended, "\(unit.name) was killed as suspended, and is not")
                process.checkSaved("killed as saved")
            }
            unit.enter(.ending)
            // The memory of a killed process takes a while to come back (K39).
            later(.milliseconds(Dice.roll(50))) { [self] in gone(unit, process) }
        case .start: complete(unit, failure: "the unit runs")
        }
    }

    private func later(_ delay: Duration, _ body: @escaping () -> Void) {
        events.append((SimulatedThreads.now + delay, body))
    }

    /// Reports the outcome of the current decision to the engine.
    private func complete(_ unit: SimulatedUnit, of decision: Decision? = nil, relief: Int = 0, failure: String? = nil) {
        guard let underWay = unit.underWay, decision == nil || underWay == decision else { return }
        unit.underWay = nil
        engine.learn(
            Outcome(underWay, at: SimulatedThreads.now, relief: ByteCount(relief), failure: failure))
        loop.unpark()
    }

    // MARK: Checks

    /// Checks that no unit stays frozen with memory free for an hour.
    private func checkUnits(_ fleet: Fleet) {
        guard let calmSince else { return }
        for unit in units where unit.report.state == .suspended || unit.report.state == .suspending {
            let since = max(unit.report.since, calmSince)
            Invariants.check(
                fleet.at - since < .seconds(3600),
                "\(unit.name) has been \(unit.report.state) for \(fleet.at - since) with \(fleet.room.map { "\($0)" } ?? "?") free")
        }
    }
}

import CSimulatedThreads
import Plimsoll
import PlimsollLifecycle
import PlimsollTesting

@testable import PlimsollLinux
@testable import PlimsollSupervisor

/// A service that a supervisor runs: one process after another, each with its own group of threads.
///
/// `@unchecked`: only the thread whose turn it is touches the members.
final class SimulatedUnit: @unchecked Sendable {
    let name: String
    let role: ServiceUnit.Role
    let importance: Int
    let limit: Int
    /// The machine's disk: the next process finds the state that one process saves.
    let store = SlowStore()
    /// The living process; `nil` while stopped.
    private(set) var process: UnitProcess?
    var report: UnitReport
    /// The decision that is being carried out.
    var underWay: Decision?
    /// Time at which the unit is killed unless it has ended.
    var killAt: Duration?
    private unowned let fleet: SimulatedFleet

    init(_ name: String, _ role: ServiceUnit.Role, importance: Int, limit: Int, of fleet: SimulatedFleet) {
        (self.name, self.role, self.importance, self.limit, self.fleet) = (name, role, importance, limit, fleet)
        report = UnitReport(name: name, role: role, importance: importance, state: .stopped, since: .zero, charge: .zero)
        report.restart = .always
    }

    var charge: Int { process?.memory.usage ?? 0 }

    func enter(_ state: UnitState) {
        Invariants.trace("\(name) \(state.rawValue)")
        report.state = state
        report.since = SimulatedThreads.now
    }

    func start() {
        Counts.starts += 1
        process = UnitProcess(self, fleet)
        (report.tokens, report.isReady, report.isSaved, report.backgroundSince) = (0, false, false, nil)
        (report.notified, report.notifiedAt, report.suspensionRequestedAt) = (.normal, nil, nil)
        report.relaunchGap = report.lastEnded.map { SimulatedThreads.now - $0 }
        (report.isThrottled, report.throttledSince, report.exitsOnSuspend) = (false, nil, false)
        (report.hasLink, report.share, report.worth, report.trustsWorth) = (false, nil, nil, Dice.chance(0.5))
        enter(.running)
    }

    /// Removes the ended process.
    func ended() {
        process = nil
        killAt = nil
        report.lastEnded = SimulatedThreads.now
        enter(.stopped)
    }
}

/// State on a slow medium.
final class SlowStore: StateStore {
    private let store = MemoryStateStore()

    func write(_ name: String, _ bytes: [UInt8]) throws {
        SimulatedThreads.sleep(Dice.between(.microseconds(50), .milliseconds(Dice.chance(0.02) ? 900 : 20)))
        Counts.saves += 1
        try store.write(name, bytes)
    }

    func append(_ delta: [UInt8], to name: String) throws -> Bool {
        SimulatedThreads.sleep(Dice.between(.microseconds(50), .milliseconds(5)))
        return try store.append(delta, to: name)
    }

    func read(_ name: String) throws -> [UInt8]? { try store.read(name) }
    func load(_ name: String) throws -> StoredState { try store.load(name) }
    func remove(_ name: String) throws { try store.remove(name) }
    func setAside(_ name: String, reason: String) throws { try store.setAside(name, reason: reason) }
}

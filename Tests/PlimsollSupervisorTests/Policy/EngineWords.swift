import Plimsoll
import PlimsollLifecycle

@testable import PlimsollSupervisor

/// Returns a report of a unit.
func unit(
    _ name: String, _ role: ServiceUnit.Role = .background, _ state: UnitState = .running, _ mebibytes: Int = 100, importance: Int = 500,
    since: Double = 0,
    change: (inout UnitReport) -> Void = { _ in }
) -> UnitReport {
    var report = UnitReport(name: name, role: role, importance: importance, state: state, since: .seconds(since), charge: .mebibytes(mebibytes))
    change(&report)
    return report
}

func fleet(_ seconds: Double, _ level: PressureLevel, short: Int = 0, room: Int? = nil, _ units: [UnitReport]) -> Fleet {
    var fleet = Fleet(at: .seconds(seconds), level: level, shortfall: .mebibytes(short), units: units)
    fleet.room = room.map { .mebibytes($0) }
    return fleet
}

extension Decision {
    /// The unit's name and the action in a few words: `web: warn critical`.
    var words: String { "\(unit): \(action.words)" }
}

extension UnitAction {
    var words: String {
        switch self {
        case .warn(let level): "warn \(level)"
        case .release(let amount): "release \(amount)"
        case .share(let share): "share \(share.bytes.map { "\($0 >> 20) MiB" } ?? "any")"
        case .background: "background"
        case .suspend: "suspend"
        case .resume(let reason): "resume \(reason.rawValue)"
        case .reclaim(let amount): "reclaim \(amount)"
        case .throttle(let on): on ? "throttle" : "unthrottle"
        case .end(.killSuspended): "kill suspended"
        case .end(.ask(let grace)): "ask \(grace.components.seconds) s"
        case .end(.kill): "kill"
        case .start: "start"
        }
    }
}

extension SupervisorEngine {
    mutating func words(_ fleet: Fleet) -> [String] { decide(fleet).map(\.words) }

    /// Decides, and learns at once that all decisions failed or succeeded.
    mutating func words(_ fleet: Fleet, failure: String?) -> [String] {
        let decisions = decide(fleet)
        for decision in decisions { learn(Outcome(decision, at: fleet.at, relief: .zero, failure: failure)) }
        return decisions.map(\.words)
    }

    /// Returns true if the unit can't be ended for now because a recent attempt failed.
    func isPassedOver(_ unit: String, at now: Duration) -> Bool { memory[unit]?.hasFailed(.kill, at: now) ?? false }
}

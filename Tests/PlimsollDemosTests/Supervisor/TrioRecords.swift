import Plimsoll
import PlimsollLifecycle
import PlimsollSupervisor

@testable import PlimsollDemos

/// Hand-made plays of the three services.
enum TrioRecords {
    static let limit = ByteCount.mebibytes(256)

    /// The kernel kills the important service, and then the growing one.
    static var without: TrioRecord {
        var record = TrioRecord(limit: limit, start: .seconds(1000))
        record.isSupervised = false
        record.kills = 1
        record.takeEnd(of: "important", at: .seconds(3.3))
        record.kills = 2
        record.takeEnd(of: "hog", at: .seconds(7))
        fill(&record)
        record.lost = ["important": 314, "bystander": 0, "hog": 653]
        return record
    }

    /// All services are warned. The growing one goes to the background, is frozen and is ended.
    static var with: TrioRecord {
        var record = TrioRecord(limit: limit, start: .seconds(1000))
        for (at, unit) in [(1.5, "hog"), (1.75, "bystander"), (2, "important")] { done(at, unit, .warn(.warning), .warning, to: &record) }
        decide(2.4, "hog", .background, .critical, to: &record)
        decide(2.4, "bystander", .background, .critical, to: &record)
        done(2.7, "bystander", .suspend, .critical, to: &record)
        done(2.8, "hog", .suspend, .critical, to: &record)
        done(2.95, "hog", .end(.killSuspended), .critical, relief: .mebibytes(61), to: &record)
        record.takeEnd(of: "hog", at: .seconds(2.97))
        done(8, "bystander", .resume(.room), .normal, to: &record)
        fill(&record)
        return record
    }

    static func decide(
        _ at: Double, _ unit: String, _ action: UnitAction, _ level: PressureLevel, reason: String = "it is the least important",
        to record: inout TrioRecord
    ) {
        let decision = Decision(at: .seconds(1000 + at), unit: unit, action: action, reason: reason)
        record.take(AuditRecord(decision, level: level, shortfall: .mebibytes(20)))
    }

    /// An action decided 0.05 s before, and done.
    static func done(
        _ at: Double, _ unit: String, _ action: UnitAction, _ level: PressureLevel, relief: ByteCount = .zero, failure: String? = nil,
        to record: inout TrioRecord
    ) {
        decide(at - 0.05, unit, action, level, to: &record)
        let decision = Decision(at: .seconds(1000 + at - 0.05), unit: unit, action: action, reason: "it is the least important")
        let outcome = Outcome(decision, at: .seconds(1000 + at), relief: relief, failure: failure)
        record.take(AuditRecord(outcome, level: level, shortfall: .mebibytes(20)))
    }

    private static func fill(_ record: inout TrioRecord) {
        record.length = .seconds(10)
        for at in stride(from: 0.0, to: 10, by: 0.1) {
            let charges = Trio.members.map { member in
                let isThere = record.endings[member.name].map { $0.at > .seconds(at) } ?? true
                return isThere ? limit * min(0.5, member.size + member.growth * at) : .zero
            }
            record.samples.append(.init(at: .seconds(at), usage: min(limit, charges.reduce(.mebibytes(9), +)), charges: charges))
        }
        for member in Trio.members { record.isAlive[member.name] = record.endings[member.name] == nil }
    }
}

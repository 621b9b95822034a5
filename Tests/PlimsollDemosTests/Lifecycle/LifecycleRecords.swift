import Plimsoll
import PlimsollLifecycle

@testable import PlimsollDemos

/// A hand-made run with all required observations.
enum LifecycleRecords {
    typealias Step = LifecycleRecord.Step

    private static let starts: [(Step, Double)] = [
        (.launch, 0), (.interrupt, 3), (.resume, 4.5), (.task, 5.5), (.background, 5.7), (.stop, 10), (.go, 14), (.foreground, 16), (.freeze, 18),
        (.thaw, 21), (.terminate, 23.2), (.end, 23.5), (.relaunch, 23.6), (.over, 25),
    ]

    private static let process: [(Double, LifecycleState, LifecycleState, LifecycleCause)] = [
        (0.2, .notRunning, .inactive, .launch), (0.25, .inactive, .active, .launch), (3.1, .active, .inactive, .interruption),
        (4.6, .inactive, .active, .interruption), (5.82, .active, .inactive, .operator), (6.04, .inactive, .background, .operator),
        (14.1, .background, .suspended, .thaw), (14.1, .suspended, .background, .thaw), (16.1, .background, .inactive, .operator),
        (16.2, .inactive, .active, .operator), (23.3, .active, .inactive, .shutdown), (23.4, .inactive, .notRunning, .shutdown),
    ]

    private static let again: [(Double, LifecycleState, LifecycleState, LifecycleCause)] = [
        (23.8, .notRunning, .inactive, .launch), (23.9, .inactive, .active, .launch),
    ]

    private static let tenant: [(Double, LifecycleState, LifecycleState, LifecycleCause)] = [
        (0.3, .inactive, .active, .launch), (3.15, .active, .inactive, .interruption), (4.65, .inactive, .active, .interruption),
        (5.8, .active, .inactive, .operator), (5.81, .inactive, .background, .operator), (16.3, .background, .inactive, .operator),
        (16.4, .inactive, .active, .operator),
    ]

    static var complete: LifecycleRecord {
        var record = LifecycleRecord()
        for (step, at) in starts { record.steps[step] = .seconds(at) }
        record.suspensions = [
            .init(from: .seconds(10), to: .seconds(14), isFreezer: false), .init(from: .seconds(18), to: .seconds(21), isFreezer: true),
        ]
        record.endings = [(.seconds(23.5), 0), (.seconds(25), 0)]
        for (steps, unit, run) in [(process, "process", 1), (tenant, "tenant-42", 1), (again, "process", 2)] {
            for (at, from, to, cause) in steps { add(LifecycleEvent(unit, from, to, cause, at: .seconds(at)), run, to: &record) }
        }
        add(LifecycleEvent("archive", .notRunning, .background, .launch, at: .seconds(0.4)), 1, to: &record)
        for (kind, at, number, run) in [
            (LifecycleEvent.Kind.listening, 0.28, 4242, 1), (.closed, 6, 0, 1), (.listening, 16.15, 4242, 1), (.began, 5.6, 0, 1),
            (.terminating, 23.4, 0, 1),
            (.listening, 23.95, 4243, 2), (.restored, 0.26, 0, 1), (.filled, 0.1, 0, 1), (.locked, 0.27, 2, 1), (.unlocked, 6.01, 0, 1),
            (.saved, 6.02, 25, 1),
            (.wiped, 6.03, 0, 1), (.ended, 8.9, 33, 1), (.locked, 16.12, 5, 1), (.filled, 16.13, 0, 1), (.saved, 23.35, 60, 1),
            (.restored, 23.92, 60, 2),
        ] { add(LifecycleEvent(kind, number: number, at: .seconds(at)), run, to: &record) }
        for index in record.seen.indices where record.seen[index].event.kind == .restored {
            record.seen[index].event.cause = record.seen[index].run == 1 ? "none" : "clean"
        }
        add(LifecycleEvent(.expired, cause: "allowance", at: .seconds(8.8)), 1, to: &record)
        var change = LifecycleEvent(.changed, number: 400, at: .seconds(14.2))
        change.to = "threads=200"
        add(change, 1, to: &record)
        record.fileChanges = 200
        for (at, length, epoch) in [(14.1, 3_900_000, 3), (21.1, 2_800_000, 6)] {
            var event = LifecycleEvent(.resumed, number: epoch, cause: "frozen", at: .seconds(at))
            event.microseconds = length
            add(event, 1, to: &record)
        }
        for (from, to, period, missed) in [
            (0.5, 3, 0.25, 0), (4.75, 5.75, 0.25, 0), (7, 10, 1.0, 0), (15, 16, 1, 4), (16.5, 18, 0.25, 0), (21.25, 23.2, 0.25, 12),
            (24.2, 25, 0.25, 0),
        ] {
            for at in stride(from: from, to: to, by: period) {
                add(LifecycleEvent(.tick, number: at == from ? missed : 0, at: .seconds(at)), 1, to: &record)
            }
        }
        for number in 0..<120 {
            let at = 0.5 + Double(number) * 0.2
            let outcome: LifecycleRecord.Outcome =
                switch at {
                case 3.1..<4.6: .refused
                case 6..<16.15: .closed
                case 18.05..<21: .silent
                default: .answered
                }
            if at < 23 { record.requests.append(.init(at: .seconds(at), outcome: outcome)) }
        }
        record.seen.sort { $0.at < $1.at }
        return record
    }

    static func add(_ event: LifecycleEvent, _ run: Int, to record: inout LifecycleRecord) {
        record.seen.append(.init(run: run, at: event.at, event: event))
    }
}

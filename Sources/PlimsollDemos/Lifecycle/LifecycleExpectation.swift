import Plimsoll
import PlimsollLifecycle

/// An observation that the demo requires as proof of a claim.
struct LifecycleExpectation: Sendable {
    let name: String
    let isMet: @Sendable (LifecycleRecord) -> Bool

    init(_ name: String, _ isMet: @escaping @Sendable (LifecycleRecord) -> Bool) {
        self.name = name
        self.isMet = isMet
    }

    /// Returns all expectations of a run; without those of the freezer if the freezer was left out.
    static func all(for record: LifecycleRecord) -> [LifecycleExpectation] {
        stay + (record.freezerRefusal == nil ? freezer : []) + end
    }

    /// Returns the names of the unmet expectations.
    static func missed(by record: LifecycleRecord) -> [String] {
        all(for: record).filter { !$0.isMet(record) }.map(\.name)
    }

    private static let stay = [
        LifecycleExpectation("the launch goes from inactive to active, and requests are answered") {
            $0.path(from: .launch, to: .interrupt) == [.inactive, .active]
                && $0.outcomes(from: .launch, to: .interrupt).contains(.answered)
        },
        LifecycleExpectation("the first launch finds no state") {
            $0.events(.restored, run: 1).map(\.event.cause) == ["none"]
                && $0.events(.restored, run: 1).first?.event.number == 0
        },
        LifecycleExpectation(
            "a scene that a user requested starts in the foreground, one that the system requested in the background"
        ) {
            $0.path(from: .launch, to: .interrupt, of: "tenant-42").last == .active
                && $0.path(from: .launch, to: .interrupt, of: "archive") == [.background]
        },
        LifecycleExpectation("an interruption makes the process inactive, and changes nothing else") {
            $0.path(from: .interrupt, to: .resume) == [.inactive]
                && $0.outcomes(from: .interrupt, to: .resume).contains(.refused)
        },
        LifecycleExpectation("the ticker runs in the foreground, and not while the process is inactive") { record in
            // The process becomes inactive later than its scenes.
            let inactive =
                record.events(.transition, from: .interrupt, to: .resume).first {
                    $0.event.unit == LifecycleEvent.process
                }?.at ?? .zero
            return record.events(.tick, from: .launch, to: .interrupt).count > 3
                && record.events(.tick, from: .interrupt, to: .resume).allSatisfy { $0.at <= inactive + slack }
                && !record.events(.tick, from: .resume, to: .background).isEmpty
        },
        LifecycleExpectation("after the interruption the process is active, and requests are answered") {
            $0.path(from: .resume, to: .background) == [.active]
                && $0.outcomes(from: .resume, to: .background).contains(.answered)
        },
        LifecycleExpectation("in the background the port is closed") {
            $0.path(from: .background, to: .stop) == [.inactive, .background]
                && $0.outcomes(from: .background, to: .stop).contains(.closed)
                && !$0.outcomes(from: .stop, to: .foreground).contains { $0 == .answered || $0 == .silent }
        },
        LifecycleExpectation("the scenes are in the background before the process") { record in
            let scene = record.events(.transition, from: .background, to: .stop).first {
                $0.event.unit == "tenant-42" && $0.event.state == .background
            }
            let process = record.events(.transition, from: .background, to: .stop).first {
                $0.event.unit == LifecycleEvent.process
            }
            guard let scene, let process else { return false }
            return scene.at <= process.at
        },
        LifecycleExpectation(
            "before the background, the process closed its port, released the lock, saved its state and wiped its key, in this order"
        ) {
            record in
            let kinds: [LifecycleEvent.Kind] = [.closed, .unlocked, .saved, .wiped]
            let done = kinds.compactMap { record.events($0, from: .background, to: .stop).first?.at }
            let there = record.events(.transition, from: .background, to: .stop).first {
                $0.event.unit == LifecycleEvent.process && $0.event.state == .background
            }
            guard let there, done.count == kinds.count else { return false }
            return zip(done, done.dropFirst() + [there.at]).allSatisfy { $0 <= $1 }
        },
        LifecycleExpectation("a task is asked to stop when its background time is spent, and stops") { record in
            guard let begun = record.steps[.background], let expired = record.events(.expired).first,
                record.events(.expired).count == 1,
                let ended = record.events(.ended).first
            else { return false }
            return expired.event.cause == ExpirationReason.allowance.rawValue
                && expired.at - begun >= LifecycleDemo.allowance
                && ended.event.number ?? 100 < 100
        },
        LifecycleExpectation("a stop by signal is noticed on resume, as suspended") {
            $0.path(from: .go, to: .foreground) == [.suspended, .background]
                && gap($0, after: .go, to: .foreground, of: 0)
        },
        LifecycleExpectation(
            "many changes of a file meanwhile are one event, after the return and before any tick, with the current content"
        ) { record in
            let changes = record.events(.changed, from: .go, to: .foreground)
            guard let change = changes.first, changes.count == 1,
                record.events(.changed, from: .launch, to: .go).isEmpty,
                let resumed = record.events(.resumed, from: .go).first, let tick = record.events(.tick, from: .go).first
            else { return false }
            return change.event.number ?? 0 > 1 && change.event.to == "threads=\(record.fileChanges)"
                && resumed.at <= change.at
                && change.at <= tick.at
        },
        LifecycleExpectation("ticks missed during a stop are not repeated in a burst") {
            noBurst($0, of: 0, missing: 2)
        },
        LifecycleExpectation(
            "in the foreground the process acquires the lock again, in a higher epoch, and reads its key"
        ) {
            record in
            let epochs = record.events(.locked, run: 1).compactMap(\.event.number),
                after = record.events(.resumed, run: 1).compactMap(\.event.number)
            guard epochs.count == 2, let stopped = after.first else { return false }
            return epochs[0] < stopped && stopped < epochs[1]
                && !record.events(.filled, from: .foreground, to: .terminate).isEmpty
        },
        LifecycleExpectation(
            "in the foreground the process listens and answers again, and the scene is in the foreground"
        ) {
            $0.path(from: .foreground, to: $0.freezerRefusal == nil ? .freeze : .terminate) == [.inactive, .active]
                && $0.outcomes(from: .foreground, to: $0.freezerRefusal == nil ? .freeze : .terminate).contains(
                    .answered)
                && $0.path(from: .foreground, to: .end, of: "tenant-42").contains(.active)
        },
    ]

    private static let freezer = [
        LifecycleExpectation("ticks missed during a freeze are not repeated in a burst") {
            noBurst($0, of: 1, missing: 6)
        },
        LifecycleExpectation("a file with its earlier content counts as unchanged") {
            $0.steps[.thaw] != nil && $0.events(.changed, from: .freeze).isEmpty
        },
        LifecycleExpectation("a frozen service answers no request, and clients wait") {
            guard let suspension = $0.suspensions.last else { return false }
            let meanwhile = $0.requests.filter {
                $0.at > suspension.from && $0.at + RequestClient.patience < suspension.to
            }
            return meanwhile.contains { $0.outcome == .silent } && !meanwhile.contains { $0.outcome == .answered }
        },
        LifecycleExpectation("a freeze in the foreground is noticed on resume, and requests are answered") {
            gap($0, after: .thaw, to: .terminate, of: $0.suspensions.count - 1)
                && $0.path(from: .thaw, to: .terminate).isEmpty
                && $0.outcomes(from: .thaw, to: .terminate).contains(.answered)
        },
    ]

    /// Tolerance for events that were already under way.
    private static let slack = Duration.milliseconds(50)

    /// Returns true if there were no ticks in the suspension and ticks at the usual pace afterwards. The first tick
    /// afterwards must report the missed ones. A tick whose body was about to run when the process stopped comes
    /// earlier, and reports none.
    private static func noBurst(_ record: LifecycleRecord, of index: Int, missing least: Int) -> Bool {
        guard record.suspensions.indices.contains(index) else { return false }
        let suspension = record.suspensions[index]
        let ticks = record.events(.tick).filter { $0.at > suspension.from + slack }
        guard let first = ticks.first, first.at >= suspension.to,
            ticks.prefix(2).contains(where: { $0.event.number ?? 0 >= least })
        else {
            return false
        }
        // The number that fits into a second, plus one for either end.
        return ticks.count { $0.at < first.at + .seconds(1) } <= Int(1 / LifecycleDemo.period.inSeconds) + 1
    }

    private static let end = [
        LifecycleExpectation("SIGTERM ends the process in order") {
            $0.path(from: .terminate, to: .end) == [.inactive, .notRunning]
                && $0.events(.terminating, run: 1).count == 1
                && $0.endings.first?.status == 0
        },
        LifecycleExpectation("the second launch restores the last state that the first saved") { record in
            guard let saved = record.events(.saved, run: 1).last?.event.number,
                let restored = record.events(.restored, run: 2).first
            else {
                return false
            }
            return saved > 0 && restored.event.number == saved && restored.event.cause == "clean"
        },
        LifecycleExpectation("the second launch starts and ends like the first") {
            $0.path(from: .relaunch, to: .over) == [.inactive, .active] && $0.endings.count == 2
                && $0.endings.last?.status == 0
        },
    ]

    /// Returns true if the process noticed a gap that matches the suspension. The noticed gap may be shorter by the
    /// interval between two checks, but never longer.
    private static func gap(
        _ record: LifecycleRecord, after step: LifecycleRecord.Step, to end: LifecycleRecord.Step, of index: Int
    ) -> Bool {
        guard record.suspensions.indices.contains(index) else { return false }
        let suspension = record.suspensions[index], least = (suspension.to - suspension.from) - .seconds(1.5)
        // A machine that itself pauses for a moment adds shorter gaps.
        let long = record.events(.resumed, from: step, to: end).filter {
            .microseconds($0.event.microseconds ?? 0) >= least
        }
        return long.count == 1 && long[0].event.cause == RunningGap.Kind.frozen.rawValue
    }
}

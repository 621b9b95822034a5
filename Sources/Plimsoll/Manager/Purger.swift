import Synchronization

/// Carries out `release` in three steps. First, volatile memory is released, as many pages as are about to be
/// needed. Then purgeables are asked in the order of rebuild cost, each class in proportion to the held bytes,
/// until the target is reached. Last, the heap's free pages are given back, and the effect is measured. From
/// request to first release, the purger allocates nothing (T27).
final class Purger: Sendable {
    struct Request: Sendable {
        var report: ActionReport
        /// Volatile memory to release, which does not count towards the report's target.
        var askedVolatile = ByteCount.zero
        var includesPrecious: Bool
        /// True to skip expensive purgeables that would cover next to nothing.
        var sparesSmall = false
        /// True to lift restrictions instead of releasing.
        var lifts = false
    }

    private struct State {
        var request: Request?
        var finished: ActionReport?
        var heap = HeapGiveBack()
        /// True once a pass may have restricted a purgeable.
        var hasRestricted = false
        /// True if a purgeable inside another call kept its restriction when the others' were lifted.
        var hasLeftRestriction = false
        /// True once the manager has ended: no pass restricts a purgeable any more.
        var hasEnded = false
    }

    private let state = Mutex(State())
    /// True if the last reading showed no need for a pass. Relaxed: an independent flag; a late read releases one
    /// stride more.
    private let isNeedGone = Atomic<Bool>(false)
    private let registry: PurgeableRegistry
    private let source: any PressureSource
    private let time: Timekeeper

    init(registry: PurgeableRegistry, source: any PressureSource, time: Timekeeper) {
        self.registry = registry
        self.source = source
        self.time = time
    }

    func post(_ request: Request) { state.withLock { $0.request = request } }

    /// True if a pass waits for the thread.
    var isAwaited: Bool { state.withLock { $0.request != nil } }

    /// Publishes for a pass under way if the last reading showed headroom above the target line.
    func publish(isNeedGone: Bool) { self.isNeedGone.store(isNeedGone, ordering: .relaxed) }

    /// Returns true if a pass under way may stop, by the last reading. Wakes the loop for another reading
    /// meanwhile.
    func isNoLongerNeeded() -> Bool {
        source.wake()
        return isNeedGone.load(ordering: .relaxed)
    }

    /// Returns the report of a pass that ended since the last call.
    func takeFinished() -> ActionReport? {
        state.withLock { exchange(&$0.finished, nil) }
    }

    /// Runs on the purge worker. Returns false if the thread was replaced meanwhile.
    func run(_ turn: Worker.Turn, done: (ActionReport) -> Void) -> Bool {
        let request = state.withLock { exchange(&$0.request, nil) }
        guard let request else { return true }
        if request.lifts {
            guard restrictAll(turn, lift: true) else { return false }
            let isLeft = registry.snapshot.contains { $0.isRestricted && !$0.gate.isClosed }
            if isLeft { state.withLock { $0.hasLeftRestriction = true } }
            return true
        }

        var report = request.report
        report.before = source.footprint()
        guard release(request, &report, turn) else { return false }
        // Only the thread in charge reaches this line, so no other thread uses the copy meanwhile.
        var heap = state.withLock { $0.heap }
        report.trim = heap.giveBack(after: report.released, of: report.asked, time: time) {
            source.footprint().resident
        }
        report.after = source.footprint()
        report.took = time.elapsed() - report.began
        state.withLock {
            $0.heap = heap
            $0.finished = report
        }
        source.wake()
        guard restrictAll(turn, lift: false) else { return false }
        done(report)
        return true
    }

    private func release(_ request: Request, _ report: inout ActionReport, _ turn: Worker.Turn) -> Bool {
        let entries = registry.snapshot
        let round = ReleasePass(turn: turn, time: time, purger: self, isUpkeep: false, sparesSmall: request.sparesSmall)
        let range = registry.volatileRange(of: entries)
        var end = round.askShared(
            entries, range, for: .volatile, includesPrecious: request.includesPrecious, target: request.askedVolatile,
            released: &report.releasedVolatile)
        if end == .done {
            end = round.ask(
                entries, range, for: .volatile, includesPrecious: request.includesPrecious,
                target: request.askedVolatile, released: &report.releasedVolatile)
        }
        if report.releasedVolatile > .zero { report.between = source.footprint() }
        guard end == .done else { return end == .noLongerNeeded }
        end = round.askShared(
            entries, entries.indices, for: .ordinary, includesPrecious: request.includesPrecious, target: report.asked,
            released: &report.released)
        guard end == .done else { return end == .noLongerNeeded }
        end = round.ask(
            entries, entries.indices, for: .ordinary, includesPrecious: request.includesPrecious, target: report.asked,
            released: &report.released)
        return end != .replaced
    }

    private func restrictAll(_ turn: Worker.Turn, lift: Bool) -> Bool {
        if !lift { state.withLock { $0.hasRestricted = true } }
        for entry in registry.snapshot {
            let now = time.elapsed()
            let inCharge = turn.call(entry.name, at: now) {
                if !lift, !hasEnded { _ = entry.gate.call(at: now) { entry.restrict() } }
                // After that call: the end of the manager leaves out a purgeable that is inside a call.
                if lift || hasEnded { _ = entry.gate.call(at: now) { entry.liftRestriction() } }
            }
            guard inCharge else { return false }
        }
        return true
    }

    private var hasEnded: Bool { state.withLock { $0.hasEnded } }

    /// Returns true if restrictions were lifted since the last call, and one had to be left.
    func takeLeftRestriction() -> Bool { state.withLock { exchange(&$0.hasLeftRestriction, false) } }

    /// Ends restricting, also by a pass under way. Returns true if `liftAll` may have restrictions to lift.
    func end() -> Bool {
        state.withLock { state in
            state.hasEnded = true
            return state.hasRestricted
        }
    }

    /// Lifts all restrictions. Runs on any thread, after `end`. Waits for purgeables that are inside a call, longer each
    /// time, and leaves those whose call takes half a minute.
    func liftAll() {
        var left = registry.snapshot
        let parker = Parker()
        var pause = Duration.milliseconds(1)
        while true {
            left.removeAll { entry in
                !entry.isRestricted || entry.gate.isClosed
                    || entry.gate.call(at: time.elapsed()) { entry.liftRestriction() }
            }
            if left.isEmpty || pause > .seconds(30) { return }
            parker.park(atMost: pause)
            pause = pause * 2
        }
    }
}

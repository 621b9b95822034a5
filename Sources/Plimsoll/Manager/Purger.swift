import Synchronization

/// Carries out `release`: volatile memory first, as much as frees the pages that are about to be needed; then holders in the order of what they cost
/// to rebuild, each class by the share it holds, until enough was let go of; then gives the heap's free pages back, and measures. From request to
/// first release it allocates nothing (T27).
final class Purger: Sendable {
    struct Request: Sendable {
        var report: ActionReport
        /// Volatile memory to give back, which does not count towards what the report asks for.
        var askedVolatile = ByteCount.zero
        var includesPrecious: Bool
        /// Whether dear holders that could cover next to nothing are passed over.
        var sparesSmall = false
        /// Lift restrictions instead of releasing.
        var lifts = false
    }

    private struct State {
        var request: Request?
        var finished: ActionReport?
        var heap = HeapGiveBack()
    }

    private let state = Mutex(State())
    /// Whether the last reading showed no need of what a pass is for. Relaxed: a fact on its own; who sees it late lets go of one stride more.
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

    /// Whether a pass waits for the thread.
    var isAwaited: Bool { state.withLock { $0.request != nil } }

    /// What the last reading said, for a pass under way: whether there is room above the line it is to reach.
    func publish(isNeedGone: Bool) { self.isNeedGone.store(isNeedGone, ordering: .relaxed) }

    /// Whether a pass under way may leave off, by the last reading. The loop is woken to take another meanwhile.
    func isNoLongerNeeded() -> Bool {
        source.wake()
        return isNeedGone.load(ordering: .relaxed)
    }

    /// The report of a pass that came to its end since the last call.
    func takeFinished() -> ActionReport? {
        state.withLock { state in
            defer { state.finished = nil }
            return state.finished
        }
    }

    /// Runs on the purging worker; false if its thread was replaced meanwhile.
    func run(_ turn: Worker.Turn, done: (ActionReport) -> Void) -> Bool {
        let request = state.withLock { state in
            defer { state.request = nil }
            return state.request
        }
        guard let request else { return true }
        if request.lifts { return restrictAll(turn, lift: true) }

        var report = request.report
        report.before = source.footprint()
        guard release(request, &report, turn) else { return false }
        // Only the thread in charge comes here, so this is not needed elsewhere meanwhile.
        var heap = state.withLock { $0.heap }
        report.trim = heap.giveBack(after: report.released, of: report.asked, time: time) { source.footprint().resident }
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
        let round = HolderRound(turn: turn, time: time, purger: self, isUpkeep: false, sparesSmall: request.sparesSmall)
        var end = round.ask(
            entries, registry.volatileRange(of: entries), for: .volatile, includesPrecious: request.includesPrecious, target: request.askedVolatile,
            released: &report.releasedVolatile)
        if report.releasedVolatile > .zero { report.between = source.footprint() }
        guard end == .done else { return end == .noLongerNeeded }
        end = round.ask(
            entries, entries.indices, for: .ordinary, includesPrecious: request.includesPrecious, target: report.asked, released: &report.released)
        return end != .replaced
    }

    private func restrictAll(_ turn: Worker.Turn, lift: Bool) -> Bool {
        for entry in registry.snapshot {
            let now = time.elapsed()
            let inCharge = turn.call(entry.name, at: now) {
                _ = entry.gate.call(at: now) { entry.purgeable.restrict(to: lift ? nil : ByteCount(entry.purgeable.heldBytes)) }
            }
            guard inCharge else { return false }
        }
        return true
    }
}

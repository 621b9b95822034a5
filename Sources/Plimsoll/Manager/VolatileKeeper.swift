import Synchronization

/// Maintains volatile memory on the purge worker while memory is not short. Notices pages reclaimed by the kernel,
/// keeps the margin free, and releases idle memory. A pass for a shortage has priority. Allocates nothing.
final class VolatileKeeper: Sendable {
    struct Request: Sendable {
        /// Bytes to release; zero for none.
        var excess = ByteCount.zero
        var noticesDrops = false
        var givesBackIdle = false
        var trimsHeap = false

        var isEmpty: Bool { excess == .zero && !noticesDrops && !givesBackIdle && !trimsHeap }
    }

    /// Findings and releases since the last `takeFindings()`.
    struct Findings: Sendable {
        var taken = ByteCount.zero
        var asked = ByteCount.zero
        var released = ByteCount.zero
        /// Sum of the measured falls of all passes.
        var fall = Footprint()
        /// Footprint after the last pass.
        var after = Footprint()
        var took = Duration.zero
    }

    /// The effect of trimming the heap.
    struct Trim: Sendable {
        var fall: ByteCount
        var took: Duration
    }

    private struct State {
        var request: Request?
        var isRunning = false
        var finishedAt: Duration?
        /// End of the rest period after the purgeables had too little to release. No excess is requested before.
        var restUntil = Duration.zero
        var findings = Findings()
        var trim: Trim?
    }

    private let state = Mutex(State())
    private let registry: PurgeableRegistry
    private let allocator: any GiveBack
    private let purger: Purger
    private let source: any PressureSource
    private let time: Timekeeper

    init(
        registry: PurgeableRegistry, purger: Purger, source: any PressureSource, time: Timekeeper,
        allocator: any GiveBack = HeapAllocator.current
    ) {
        self.registry = registry
        self.allocator = allocator
        self.purger = purger
        self.source = source
        self.time = time
    }

    /// Rest period after purgeables released less than half of the requested bytes: all their memory is in use.
    static let rest = Duration.seconds(10)

    /// True if the heap can be trimmed.
    var canTrim: Bool { allocator.canGiveBack }

    /// Returns true if a request that follows from `reading` may be posted: none is under way, and none has ended
    /// since the reading was taken.
    func isFree(for reading: PressureReading) -> Bool {
        state.withLock { state in !state.isRunning && state.finishedAt.map { reading.at > $0 } ?? true }
    }

    /// Sets `request` as the next; call only when free. Returns false if there is nothing to do.
    func post(_ request: Request, for reading: PressureReading) -> Bool {
        state.withLock { state in
            var request = request
            if reading.at < state.restUntil { request.excess = .zero }
            guard !request.isEmpty else { return false }
            state.isRunning = true
            state.request = request
            return true
        }
    }

    /// Records that a purgeable got stuck and the pass was abandoned.
    func abandoned() { state.withLock { ($0.isRunning, $0.request) = (false, nil) } }

    /// Takes the accumulated findings; `nil` if there are none.
    func takeFindings() -> Findings? {
        state.withLock { state in
            guard state.findings.taken > .zero || state.findings.asked > .zero else { return nil }
            return exchange(&state.findings, Findings())
        }
    }

    /// Takes the effect of the last trim.
    func takeTrim() -> Trim? {
        state.withLock { exchange(&$0.trim, nil) }
    }

    /// Runs on the purge worker. Returns false if the thread was replaced meanwhile.
    func run(_ turn: Worker.Turn) -> Bool {
        let request = state.withLock { exchange(&$0.request, nil) }
        guard let request else { return true }
        let entries = registry.snapshot, range = registry.volatileRange(of: entries)
        var findings = Findings()
        if request.noticesDrops {
            guard noticeDrops(entries, range, &findings, turn) else { return false }
        }
        if request.excess > .zero {
            guard makeRoom(entries, range, request.excess, &findings, turn) else { return false }
        }
        if request.givesBackIdle {
            for index in range {
                let entry = entries[index], now = time.elapsed()
                guard
                    turn.call(entry.name, at: now, { _ = entry.gate.call(at: now) { entry.volatile?.giveBackIdle() } })
                else { return false }
            }
        }
        var trim: Trim?
        if request.trimsHeap {
            let before = source.footprint().resident, began = time.elapsed()
            allocator.keepLess()
            allocator.giveBack(.full)
            trim = Trim(fall: before - source.footprint().resident, took: time.elapsed() - began)
        }
        state.withLock { state in
            state.isRunning = false
            if let trim { state.trim = trim }
            let now = time.elapsed()
            state.finishedAt = now
            if findings.released < findings.asked * 0.5 { state.restUntil = now + Self.rest }
            state.findings.add(findings)
        }
        // Released or reclaimed memory is headroom only if the next reading confirms it: others may have taken that
        // memory.
        if request.excess > .zero || findings.taken > .zero { source.wake() }
        return true
    }

    private func noticeDrops(
        _ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, _ findings: inout Findings, _ turn: Worker.Turn
    ) -> Bool {
        for index in range {
            let entry = entries[index], now = time.elapsed()
            var taken = 0
            let inCharge = turn.call(entry.name, at: now) {
                _ = entry.gate.call(at: now) { taken = entry.volatile?.noticeDrops() ?? .zero }
            }
            guard inCharge else { return false }
            findings.taken += ByteCount(min(max(0, taken), ReleasePass.mostHeld))
        }
        return true
    }

    private func makeRoom(
        _ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, _ excess: ByteCount, _ findings: inout Findings,
        _ turn: Worker.Turn
    ) -> Bool {
        let began = time.elapsed(), before = source.footprint()
        let round = ReleasePass(turn: turn, time: time, purger: purger, isUpkeep: true)
        findings.asked = excess
        var end = round.askShared(
            entries, range, for: .all, includesPrecious: false, target: excess, released: &findings.released)
        // Precious contents go last, but they go: the kernel, which would reclaim instead, does not spare them.
        if end == .done {
            end = round.ask(
                entries, range, for: .all, includesPrecious: true, target: excess, released: &findings.released)
        }
        findings.after = source.footprint()
        findings.fall = Footprint(
            resident: before.resident - findings.after.resident, usage: before.usage - findings.after.usage)
        findings.took = time.elapsed() - began
        return end != .replaced
    }
}

extension VolatileKeeper.Findings {
    /// Adds the findings of a later pass.
    fileprivate mutating func add(_ later: Self) {
        taken += later.taken
        guard later.asked > .zero else { return }
        asked += later.asked
        released += later.released
        fall.resident += later.fall.resident
        fall.usage += later.fall.usage
        after = later.after
        took += later.took
    }
}

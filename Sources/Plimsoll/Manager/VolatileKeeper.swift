import Synchronization

/// Looks after volatile memory on the purging worker while memory is idle: notices what the kernel took, keeps the margin free, gives back what earns
/// nothing. A pass for a shortage goes before it. Allocates nothing.
final class VolatileKeeper: Sendable {
    struct Request: Sendable {
        /// Bytes to give back; zero for none.
        var excess = ByteCount.zero
        var noticesDrops = false
        var givesBackIdle = false
        var trimsHeap = false

        var isEmpty: Bool { excess == .zero && !noticesDrops && !givesBackIdle && !trimsHeap }
    }

    /// What was found and done since somebody last asked.
    struct Findings: Sendable {
        var taken = ByteCount.zero
        var asked = ByteCount.zero
        var released = ByteCount.zero
        /// Sums of what each pass measured.
        var fall = Footprint()
        /// Footprint after the last of them.
        var after = Footprint()
        var took = Duration.zero
    }

    /// What a trim of the heap brought.
    struct Trim: Sendable {
        var fall: ByteCount
        var took: Duration
    }

    private struct State {
        var request: Request?
        var isRunning = false
        var finishedAt: Duration?
        /// Not asked for room before: they had none.
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

    init(registry: PurgeableRegistry, purger: Purger, source: any PressureSource, time: Timekeeper, allocator: any GiveBack = HeapAllocator.current) {
        self.registry = registry
        self.allocator = allocator
        self.purger = purger
        self.source = source
        self.time = time
    }

    /// How long holders that had less than half of what they were asked for are left alone: all of it is in use.
    static let rest = Duration.seconds(10)

    /// Whether the heap can be trimmed.
    var canTrim: Bool { allocator.canGiveBack }

    /// Whether a request may be posted that follows from `reading`: none is under way, nor has one ended since the reading was taken.
    func isFree(for reading: PressureReading) -> Bool {
        state.withLock { state in !state.isRunning && state.finishedAt.map { reading.at > $0 } ?? true }
    }

    /// Makes `request` the next; only when free. False if there is nothing to do.
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

    /// A holder got stuck and was given up.
    func abandoned() { state.withLock { ($0.isRunning, $0.request) = (false, nil) } }

    /// What has come together, once; `nil` for nothing.
    func takeFindings() -> Findings? {
        state.withLock { state in
            guard state.findings.taken > .zero || state.findings.asked > .zero else { return nil }
            defer { state.findings = Findings() }
            return state.findings
        }
    }

    /// What the last trim brought, once.
    func takeTrim() -> Trim? {
        state.withLock { state in
            defer { state.trim = nil }
            return state.trim
        }
    }

    /// Runs on the purging worker.
    func run(_ turn: Worker.Turn) {
        let request = state.withLock { state in
            defer { state.request = nil }
            return state.request
        }
        guard let request else { return }
        let entries = registry.snapshot, range = registry.volatileRange(of: entries)
        var findings = Findings()
        if request.noticesDrops {
            guard noticeDrops(entries, range, &findings, turn) else { return }
        }
        if request.excess > .zero {
            guard makeRoom(entries, range, request.excess, &findings, turn) else { return }
        }
        if request.givesBackIdle {
            for index in range {
                let entry = entries[index], now = time.elapsed()
                guard turn.call(entry.name, at: now, { _ = entry.gate.call(at: now) { entry.volatile?.giveBackIdle() } }) else { return }
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
        // What went off the books is room only if the next reading says so: others may have it.
        if request.excess > .zero || findings.taken > .zero { source.wake() }
    }

    private func noticeDrops(_ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, _ findings: inout Findings, _ turn: Worker.Turn) -> Bool {
        for index in range {
            let entry = entries[index], now = time.elapsed()
            var taken = 0
            let inCharge = turn.call(entry.name, at: now) {
                _ = entry.gate.call(at: now) { taken = entry.volatile?.noticeDrops() ?? .zero }
            }
            guard inCharge else { return false }
            findings.taken += ByteCount(min(max(0, taken), HolderRound.mostHeld))
        }
        return true
    }

    private func makeRoom(
        _ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, _ excess: ByteCount, _ findings: inout Findings, _ turn: Worker.Turn
    ) -> Bool {
        let began = time.elapsed(), before = source.footprint()
        let round = HolderRound(turn: turn, time: time, purger: purger, isUpkeep: true)
        findings.asked = excess
        // What is precious goes last, but it goes: the kernel, which would take it instead, knows no such thing.
        let end = round.ask(entries, range, for: .all, includesPrecious: true, target: excess, released: &findings.released)
        findings.after = source.footprint()
        findings.fall = Footprint(resident: before.resident - findings.after.resident, usage: before.usage - findings.after.usage)
        findings.took = time.elapsed() - began
        return end != .replaced
    }
}

extension VolatileKeeper.Findings {
    /// Adds what came later.
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

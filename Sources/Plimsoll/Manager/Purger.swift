import Synchronization

/// Carries out `release`: asks holders in the order of what they cost to rebuild, each class by the share it holds, stops
/// when enough was let go of, gives the heap's free pages back, and measures. From request to first release it allocates nothing (T27).
final class Purger: Sendable {
    struct Request: Sendable {
        var report: ActionReport
        var includesPrecious: Bool
        /// Lift restrictions instead of releasing.
        var lifts = false
    }

    private struct State {
        var request: Request?
        var finished: ActionReport?
        var heap = HeapGiveBack()
    }

    /// A holder that claims more than a pebibyte is wrong, and sums of such claims must not overflow.
    private static let mostHeld = 1 << 50

    private let state = Mutex(State())
    private let registry: PurgeableRegistry
    private let source: any PressureSource
    private let time: Timekeeper

    init(registry: PurgeableRegistry, source: any PressureSource, time: Timekeeper) {
        self.registry = registry
        self.source = source
        self.time = time
    }

    func post(_ request: Request) { state.withLock { $0.request = request } }

    /// The report of a pass that came to its end since the last call.
    func takeFinished() -> ActionReport? {
        state.withLock { state in
            defer { state.finished = nil }
            return state.finished
        }
    }

    /// Runs on the purging worker.
    func run(_ turn: Worker.Turn, done: (ActionReport) -> Void) {
        let request = state.withLock { state in
            defer { state.request = nil }
            return state.request
        }
        guard let request else { return }
        if request.lifts { return restrictAll(turn, lift: true) }

        var report = request.report
        report.before = source.footprint()
        let entries = registry.snapshot
        var position = entries.startIndex
        while position < entries.endIndex, report.released < report.asked {
            let cost = entries[position].rebuildCost
            if cost == .precious, !request.includesPrecious { break }
            var end = position
            while end < entries.endIndex, entries[end].rebuildCost == cost { end += 1 }
            guard release(entries, position..<end, &report, turn) else { return }
            position = end
        }
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
        restrictAll(turn, lift: false)
        done(report)
    }

    /// Asks each of a class for its share of what is still wanted. What one cannot give falls to the next.
    private func release(_ entries: [PurgeableRegistry.Entry], _ range: Range<Int>, _ report: inout ActionReport, _ turn: Worker.Turn) -> Bool {
        var heldLeft = 0
        // By index: iterating an array allocates a coroutine frame in debug builds, and the tests count those.
        for index in range {
            let entry = entries[index]
            entry.held.store(0, ordering: .relaxed)
            let inCharge = turn.call(entry.name, at: time.elapsed()) {
                _ = entry.gate.call { entry.held.store(min(max(0, entry.purgeable.heldBytes.bytes), Self.mostHeld), ordering: .relaxed) }
            }
            guard inCharge else { return false }
            heldLeft += entry.held.load(ordering: .relaxed)
        }
        for index in range {
            let entry = entries[index]
            let held = entry.held.load(ordering: .relaxed)
            let wanted = (report.asked - report.released).bytes
            if wanted <= 0 { break }
            guard held > 0 else { continue }
            let share = heldLeft > 0 ? Double(held) / Double(heldLeft) : 1
            heldLeft -= held
            let ask = ByteCount(min(held, Int((Double(wanted) * min(1, share)).rounded(.up))))
            var released = ByteCount.zero
            let inCharge = turn.call(entry.name, at: time.elapsed()) {
                _ = entry.gate.call { released = entry.purgeable.release(ask) }
            }
            guard inCharge else { return false }
            // More than it held is a slip of the holder's counting, not memory.
            report.released += min(max(.zero, released), max(ask, ByteCount(held)))
        }
        return true
    }

    private func restrictAll(_ turn: Worker.Turn, lift: Bool) {
        for entry in registry.snapshot {
            let inCharge = turn.call(entry.name, at: time.elapsed()) {
                _ = entry.gate.call { entry.purgeable.restrict(to: lift ? nil : entry.purgeable.heldBytes) }
            }
            guard inCharge else { return }
        }
    }
}

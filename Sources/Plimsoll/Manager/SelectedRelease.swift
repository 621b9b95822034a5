import Synchronization

/// Releases the selected memory, independent of the level: for an operator, or on the way to the background. Runs
/// on the calling thread.
struct SelectedRelease: Sendable {
    let source: any PressureSource
    let time: Timekeeper
    let level: PressureLevel
    let origin: ActionReport.Origin

    /// Asks `entries` in order until `target` bytes are released, and gives the heap's free pages back.
    func run(_ entries: [PurgeableRegistry.Entry], _ target: ByteCount) -> ActionReport {
        var report = begin(target)
        ask(inOrder(entries), target, &report) { _ in }
        finish(&report)
        return report
    }

    func begin(_ target: ByteCount) -> ActionReport {
        var report = ActionReport(eventID: 0, action: .release, level: level, evidence: [], began: time.elapsed())
        report.origin = origin
        report.asked = target == .max ? .zero : target
        report.before = source.footprint()
        return report
    }

    /// Returns `entries` with the quickest to rebuild first within each class.
    private func inOrder(_ entries: [PurgeableRegistry.Entry]) -> [PurgeableRegistry.Entry] {
        for entry in entries { _ = entry.gate.call(at: time.elapsed()) { entry.readRate() } }
        var sorted: [PurgeableRegistry.Entry] = []
        while sorted.count < entries.count {
            let start = sorted.count
            let end = entries[start...].firstIndex { !$0.isSameClass(as: entries[start]) } ?? entries.count
            let order = RebuildOrder(start..<end) { entries[$0].lastRate }
            let places = (start..<end).map { (place: order.place(of: entries[$0].lastRate), index: $0) }
            sorted += places.sorted { ($0.place, $0.index) < ($1.place, $1.index) }.map { entries[$0.index] }
        }
        return sorted
    }

    /// - Parameter inside: receives the name of each entry before that entry is asked.
    func ask(
        _ entries: [PurgeableRegistry.Entry], _ target: ByteCount, _ report: inout ActionReport,
        inside: (String) -> Void
    ) {
        var left = target, busy: [String] = []
        for entry in entries where left > .zero {
            inside(entry.name)
            var gained = ByteCount.zero, isVolatile = false
            let isDone = entry.gate.call(at: time.elapsed()) {
                let held = ByteCount(min(max(0, entry.purgeable.heldBytes), ReleasePass.mostHeld))
                isVolatile = entry.volatile.map { $0.volatileBytes > 0 } ?? false
                // A release above the held bytes is an accounting error of the purgeable, not memory.
                gained = min(max(.zero, ByteCount(entry.purgeable.release(min(held, left).bytes))), held)
            }
            // The entry was cancelled meanwhile, or is inside a call from another thread.
            if !isDone, entry.gate.isBusy { busy.append(entry.name) }
            if isVolatile { report.releasedVolatile += gained } else { report.released += gained }
            left -= gained
        }
        if !busy.isEmpty { report.outcome = .overran(report.overran + busy) }
    }

    func finish(_ report: inout ActionReport) {
        HeapAllocator.current.giveBack(.full)
        report.after = source.footprint()
        report.took = time.elapsed() - report.began
    }
}

extension ManagerParts {
    func selectedRelease(_ origin: ActionReport.Origin) -> SelectedRelease {
        SelectedRelease(source: source, time: time, level: level, origin: origin)
    }

    /// Releases memory that is kept only for speed, on the way to the background: all contents registered with
    /// `purgesOnBackground`, the spare memory of every purgeable, and the heap's free pages (C87, C88). Handles
    /// stay valid. Blocks for at most `budget` of running time. The report names the purgeable that caused an
    /// overrun.
    @discardableResult
    package func purgeForBackground(within budget: Duration = .seconds(1)) -> ActionReport {
        let entries = purgeables.snapshot, release = selectedRelease(.background)
        let progress = BackgroundPurge(release.begin(.max))
        let outcome = BoundedCalls.run(
            blocking: [{ @Sendable () -> Void in progress.run(entries, release) }], within: budget, alarms: alarms,
            threads: threads)
        let finished = progress.report(lateAfter: outcome == [.done] ? nil : budget)
        report(finished)
        return finished
    }

    private final class BackgroundPurge: Sendable {
        private let state: Mutex<(report: ActionReport, inside: String)>

        init(_ report: ActionReport) { state = Mutex((report, "")) }

        func run(_ entries: [PurgeableRegistry.Entry], _ release: SelectedRelease) {
            for entry in entries {
                state.withLock { $0.inside = entry.name }
                var report = state.withLock { $0.report }
                if entry.place.purgesOnBackground { release.ask([entry], .max, &report) { _ in } }
                var spares = 0
                _ = entry.gate.call(at: release.time.elapsed()) { spares = entry.purgeable.dropSpares() }
                report.released += ByteCount(min(max(0, spares), ReleasePass.mostHeld))
                state.withLock { $0.report = report }
            }
            state.withLock { $0.inside = "heap" }
            var report = state.withLock { $0.report }
            release.finish(&report)
            state.withLock { $0.report = report }
        }

        /// - Parameter budget: the time after which the purge had not ended; `nil` if the purge has ended.
        func report(lateAfter budget: Duration?) -> ActionReport {
            state.withLock { state in
                var report = state.report
                if let budget {
                    (report.after, report.took) = (report.before, budget)
                    report.outcome = .overran(report.overran + [state.inside])
                }
                return report
            }
        }
    }
}

import Plimsoll
import PlimsollLinux
import Synchronization

// What is known now.
extension SupervisorLoop {
    /// All is started, and nothing is due: what only that took is let go of.
    func settleDown() {
        isFresh = false
        CleanPages.release()
        // What deciding takes is in memory before there is none: the pages that this reads stay.
        var rehearsal = engine
        var fleet = Fleet(at: now, level: .critical, shortfall: .gibibytes(1), units: runs.values.map { $0.report() })
        fleet.timeLeft = .zero
        _ = rehearsal.decide(fleet)
    }

    /// All units as they are now.
    func look() -> Fleet {
        let view = eyes.current
        let isShort = view.level > .normal || runs.values.contains { $0.underWay != nil }
        if isShort { for run in runs.values { run.weigh() } }
        let reports = runs.values.map { run in
            var report = run.report()
            if isShort, run.state == .suspended { report.isSaved = isSaved(run) }
            return report
        }
        var fleet = Fleet(at: now, level: view.level, shortfall: view.shortfall, units: reports)
        (fleet.room, fleet.timeLeft, fleet.measuredAt) = (view.room, view.timeLeft, view.at)
        supervisor.published.withLock { $0 = fleet.units }
        return fleet
    }
}

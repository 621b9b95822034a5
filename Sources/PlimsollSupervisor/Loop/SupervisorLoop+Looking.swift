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

    /// Has another thread look whether a unit that leaves holds locks: its tables may be long. Once, and again as long as it does. When the answer is needed
    /// and isn't there, it is looked for here, among few descriptors.
    func lookForLocks(of run: UnitRun) {
        let isNeeded = run.isReady || now >= run.since + options.policy.leaveTime || eyes.current.timeLeft != nil
        if run.locks.areHeld == nil, isNeeded {
            run.locks.saw(
                !LockTable.holders(among: run.group.processes, most: LockTable.mostDescriptors / 8).isEmpty, at: now)
        }
        guard run.locks.isDue(at: now) else { return }
        run.locks.look(at: now)
        let id = run.id, since = run.since, asked = now, group = run.group, supervisor = supervisor
        lookout.work {
            supervisor.ask(
                .locks(id, since: since, asked: asked, areHeld: !LockTable.holders(among: group.processes).isEmpty))
        }
    }

    /// All units as they are now.
    func look() -> Fleet {
        let view = eyes.current
        let isShort = view.level > .normal || runs.values.contains { $0.underWay != nil }
        if isShort { for run in runs.values { run.weigh() } }
        for run in runs.values where run.state == .leaving { lookForLocks(of: run) }
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

import Plimsoll
import PlimsollLinux
import Synchronization

// The current state of all units.
extension SupervisorLoop {
    /// Releases memory that was needed only for the start, once all units are started and nothing is due.
    func settleDown() {
        isFresh = false
        CleanPages.release()
        // The pages used by a decision are read now, and stay resident for the time when memory is short.
        var rehearsal = engine
        var fleet = Fleet(at: now, level: .critical, shortfall: .gibibytes(1), units: runs.values.map { $0.report() })
        fleet.timeLeft = .zero
        _ = rehearsal.decide(fleet)
    }

    /// Schedules a lock check for a leaving unit on another thread, since the unit's tables may be long. Repeats while
    /// the unit holds locks. If the answer is needed and missing, checks here among a limited number of descriptors.
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

    /// Returns the current state of all units.
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

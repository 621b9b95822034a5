import Plimsoll
import PlimsollLinux
import Synchronization

// The current state of all units.
extension SupervisorLoop {
    /// Releases memory that was needed only for the start, once all units are started and nothing is due.
    func trimAfterStart() {
        isFresh = false
        CleanPages.release()
        // The pages used by a decision are read now, and stay resident for the time when memory is short.
        var rehearsal = engine
        let reports = runs.values.map { $0.report(at: now) }
        var fleet = Fleet(at: now, level: .critical, shortfall: .gibibytes(1), units: reports)
        fleet.timeLeft = .zero
        _ = rehearsal.decide(fleet)
    }

    /// Schedules a lock check for a unit before a freeze. The check runs on another thread, since the unit's tables may
    /// be long, and repeats while the unit holds locks. If the answer is needed and missing, checks here among a
    /// limited number of descriptors.
    func checkLocks(of run: UnitRun) {
        // After a wake the freeze is due now.
        let isNeeded =
            run.isReady || run.state == .running || now >= run.since + options.policy.leaveTime
            || fleetWatch.current.timeLeft != nil
        if run.locks.areHeld == nil, isNeeded {
            run.locks.record(LockTable.mayBeHeld(in: run.group, most: LockTable.mostDescriptors / 8), at: now)
        }
        guard run.locks.isDue(at: now) else { return }
        run.locks.startCheck(at: now)
        let id = run.id, since = run.since, asked = now, group = run.group, supervisor = supervisor
        readWorker.work {
            supervisor.ask(.locks(id, since: since, asked: asked, areHeld: LockTable.mayBeHeld(in: group)))
        }
    }

    /// Returns the current state of all units.
    func readFleet() -> Fleet {
        var fleet = fleetWatch.current
        let isShort = fleet.level > .normal || runs.values.contains { $0.underWay != nil }
        if isShort {
            for run in runs.values {
                // Without events of the kernel, a thaw by another party shows only here.
                if run.isSaved { noteThaw(of: run) }
                run.weigh()
            }
        }
        for run in runs.values {
            run.noteWake(at: now, budget: options.policy.keepAliveBudget)
            if run.isBeforeFreeze { checkLocks(of: run) }
        }
        fleet.units = runs.values.map { run in
            // Before the report, since messages that were not read yet belong into that report.
            let isEndangered = isShort && (run.state == .suspended || run.state == .ending)
            let saved = isEndangered ? isSaved(run) : run.isSaved
            var report = run.report(at: now)
            report.isSaved = saved
            return report
        }
        fleet.at = now
        supervisor.published.withLock { $0 = fleet.units }
        return fleet
    }
}

/// The known state of the file locks of a unit that is about to be frozen.
struct LockCheck: Equatable {
    /// True if the unit holds locks; `nil` before the first check.
    private(set) var areHeld: Bool?
    /// Start of the last check. `isChecking` is true while the answer is pending.
    private var asked: Duration?
    private var isChecking = false
    /// Time at which the unit reported to be ready.
    private var readyAt: Duration?

    /// Time between checks of a unit that holds locks.
    static let interval = Duration.seconds(1)

    /// Starts over when the unit changes state: nothing is known about its locks.
    mutating func begin() { (areHeld, asked, readyAt) = (nil, nil, nil) }

    /// Records that the unit reports ready to be frozen. A lock seen before may only have protected the save, so the
    /// check repeats at once. Applies only to the first report on a way out, so that a unit that changes its mind costs
    /// no more.
    mutating func becameReady(at now: Duration) {
        guard readyAt == nil else { return }
        readyAt = now
        if areHeld == true { (areHeld, asked) = (nil, nil) }
    }

    /// Returns true if another thread is to check now: once, and again for as long as locks are held.
    func isDue(at now: Duration) -> Bool {
        !isChecking && areHeld != false && nextDue.map { now >= $0 } ?? true
    }

    /// Time at which the check repeats; `nil` before the first check, while an answer is pending, and once no locks
    /// are held.
    var nextDue: Duration? { isChecking || areHeld == false ? nil : asked.map { $0 + Self.interval } }

    /// Records that another thread checks from now on.
    mutating func startCheck(at now: Duration) { (isChecking, asked) = (true, now) }

    /// Records the result of the check that began at `asked`.
    ///
    /// - Parameter counts: true if the unit has not changed state since the check began.
    mutating func answer(_ areHeld: Bool, asked: Duration, counts: Bool) {
        isChecking = false
        guard counts else { return }
        // The check began before the unit was ready: see `becameReady(at:)`.
        if areHeld, let readyAt, asked < readyAt { return }
        self.areHeld = areHeld
    }

    /// Records the result of a check on the supervisor's own thread.
    mutating func record(_ areHeld: Bool, at now: Duration) { (self.areHeld, asked) = (areHeld, now) }
}

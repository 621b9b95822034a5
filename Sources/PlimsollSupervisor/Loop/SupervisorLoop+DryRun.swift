import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization

// A dry run observes running units and changes nothing.
extension SupervisorLoop {
    var isDryRun: Bool { options.policy.isDryRun }

    /// Returns true if a dry run may start a unit: no other supervisor has the unit. A second instance might do
    /// everything twice.
    func startsItself(_ unit: ServiceUnit) -> Bool {
        guard case .command = unit.origin else { return false }
        return !SupervisorClaim.isHeld(options.directory)
            && !ProcessNote.units(in: options.directory).contains(unit.name)
    }

    /// Observes a unit in place. The origin gives the place. For a command, the note of the supervisor with the same
    /// directory gives the place.
    func observe(_ unit: ServiceUnit) throws {
        var group: UnitGroup, child: Child?
        switch unit.origin {
        case .group(let path): group = try supervisor.root.adopt(unit.name, at: path)
        case .process(let pid):
            child = try Child.adopt(pid)
            group = try UnitGroup(unit.name, [], own: supervisor.root.own)
        case .command:
            let note = ProcessNote(options.directory, unit.name)
            let directories = try note.groups.compactMap { try? GroupDirectory($0.hierarchy, $0.path, isOurs: false) }
            child = try note.process()
            group = try UnitGroup(unit.name, directories, own: supervisor.root.own)
            if directories.isEmpty, child == nil {
                report(unit, "it does not run, and a dry run beside a supervisor starts nothing")
            }
        }
        if let child { group.note(child.pid) }
        let run = try keep(unit, group, isObserved: true)
        run.child = child
        guard !group.isEmpty else { return }
        began(run)
        seeStandstill(run)
    }

    /// Records that another supervisor has frozen or thawed the unit.
    func seeStandstill(_ run: UnitRun) {
        guard run.isObserved, run.state == .running || run.state == .suspended else { return }
        run.enter(run.group.isFrozen ? .suspended : .running, at: now)
    }

    static func scratchDirectory() throws(SupervisorError) -> String {
        var template = Array("/tmp/plimsoll-dry-run-XXXXXX".utf8CString)
        let path = template.withUnsafeMutableBufferPointer {
            $0.baseAddress.flatMap { mkdtemp($0) }.map { String(cString: $0) }
        }
        guard let path else {
            throw SupervisorError("a dry run needs a directory of its own in /tmp: \(String(cString: strerror(errno)))")
        }
        return path
    }

    /// Removes the directory together with its sockets and notes.
    func removeScratchDirectory() {
        for name in GroupText.names(in: directory) { unlink("\(directory)/\(name)") }
        rmdir(directory)
    }
}

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
        let isNeeded = run.isReady || now >= run.since + options.policy.leaveTime || fleetWatch.current.timeLeft != nil
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
        let view = fleetWatch.current
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

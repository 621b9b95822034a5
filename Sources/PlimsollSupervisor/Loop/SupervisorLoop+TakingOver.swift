import Glibc
import Plimsoll

// Takeover of running units.
extension SupervisorLoop {
    /// Ends units that a former supervisor started and the units file no longer names. The former supervisor would have
    /// ended them, had that one lived to read the file. Such units are identified by the notes in the directory alone,
    /// never by a group's name.
    ///
    /// - Parameter units: the units in the file.
    func endLeftovers(beside units: [ServiceUnit]) {
        let named = Set(units.map(\.name))
        for name in ProcessNote.units(in: options.directory) where !named.contains(name) {
            let unit = ServiceUnit(name: name, origin: .command([]))
            guard !isDryRun else {
                report(
                    unit, "started by a supervisor and not in this file; a dry run leaves the unit unchanged")
                continue
            }
            endLeftover(unit)
        }
    }

    func endLeftover(_ unit: ServiceUnit) {
        let note = ProcessNote(options.directory, unit.name)
        var run: UnitRun?
        do {
            let directories = try note.groups
            if directories.isEmpty, try note.process() == nil {
                note.remove()
            } else {
                let kept = try keep(unit, UnitGroup(unit.name, directories, own: supervisor.root.own))
                run = kept
                try takeOver(kept)
                if kept.isAlive { report(unit, "ended: left by an earlier supervisor and no longer in the units file") }
                dismiss(kept, within: options.policy.grace)
            }
            postponed[unit.name] = nil
        } catch {
            if postpone(unit, isLeftover: true, for: error), let run { letGo(run) }
        }
    }

    /// Lifts temporary limits of a former supervisor that was killed together with its guard.
    func liftLeftovers() {
        for name in ProcessNote.units(in: directory) {
            for limit in ProcessNote(directory, name).limits { limit.lift() }
        }
    }

    /// Takes over a running unit: an origin outside the supervisor, or a unit of the previous supervisor. That
    /// supervisor may have left the unit frozen.
    ///
    /// Ends the remains of a unit of the previous supervisor whose main process has ended since.
    func takeOver(_ run: UnitRun) throws {
        try run.group.thaw()
        if case .process(let pid) = run.unit.origin {
            let child = try Child.adopt(pid)
            try run.group.enterTree(pid, sparing: Set(byProcess.keys).union([thawWatchdog.pid]))
            run.child = child
            return began(run)
        }
        let note = ProcessNote(directory, run.unit.name), noted = run.isOurs ? try note.process() : nil
        // Without groups, only the note identifies the process.
        if let noted { run.group.note(noted.pid) }
        // A killed supervisor may have left a throttle. Lift the throttle, since the next process would be slow as
        // well.
        if run.isOurs { for limit in run.group.throttle().lift { limit.lift() } }
        if run.group.isEmpty { return }
        // A note without a process says nothing about the main process.
        let hasEnded = run.isOurs && noted == nil && note.read() != nil
        if run.isOurs { run.child = noted }
        // If this supervisor is killed before the remains have ended, the next one needs the same note.
        began(run, keepsNote: hasEnded)
        // Processes left behind by the main process end with that process. They get time for that, as the note may be
        // older than the main process: another program took its place, or the last note could not be written.
        if hasEnded { askToEnd(run, options.policy.grace) }
    }
}

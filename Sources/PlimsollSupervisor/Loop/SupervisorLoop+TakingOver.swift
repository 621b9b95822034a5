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
        do {
            try endNoted(unit)
            postponed[unit.name] = nil
        } catch {
            postpone(unit, isLeftover: true, for: error)
        }
    }

    /// Ends a program that a former supervisor started under the name of `unit`, if the name stands for a process or a
    /// group by now.
    ///
    /// - Returns: true if the program is ending, and `unit` follows after that, as after a reload.
    func followsLeftover(_ unit: ServiceUnit) throws -> Bool {
        if case .command = unit.origin { return false }
        try endNoted(ServiceUnit(name: unit.name, origin: .command([])))
        guard let old = byName[unit.name] else {
            // Nothing runs there. A note that stayed would count the new unit's processes as left behind.
            ProcessNote(options.directory, unit.name).remove()
            return false
        }
        old.successor = unit
        return true
    }

    /// Ends the processes that a former supervisor's note names. Removes a note that names none.
    private func endNoted(_ unit: ServiceUnit) throws {
        let note = ProcessNote(options.directory, unit.name), directories = try note.groups
        if directories.isEmpty, try note.process() == nil { return note.remove() }
        let run = try keep(unit, UnitGroup(unit.name, directories, own: supervisor.root.own))
        do { try takeOver(run) } catch {
            letGo(run)
            // No error of the unit that has the name by now, which may be tried again.
            throw SupervisorError("\(error)")
        }
        if run.isAlive {
            report(unit, "ended: left by an earlier supervisor, and no command of that name is in the units file")
        }
        dismiss(run, within: options.policy.grace)
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
        let isStarting = run.unit.notify && note.isStarting
        // If this supervisor is killed before the remains have ended, the next one needs the same note.
        began(run, isUp: !isStarting, keepsNote: hasEnded)
        run.mayBeUp = isStarting
        // Processes left behind by the main process end with that process. They get time for that, as the note may be
        // older than the main process: another program took its place, or the last note could not be written.
        if hasEnded { askToEnd(run, options.policy.grace) }
    }
}

import Glibc
import Plimsoll

// What runs already.
extension SupervisorLoop {
    /// Units that a former supervisor started and the units file names no more end, as they would have if that one had lived to read it. They are known by the
    /// notes in its directory alone: no group is taken for one by its name.
    ///
    /// - Parameter units: those that the file names.
    func endLeftovers(beside units: [ServiceUnit]) {
        let named = Set(units.map(\.name))
        for name in ProcessNote.units(in: options.directory) where !named.contains(name) {
            let unit = ServiceUnit(name: name, origin: .command([]))
            guard !isDryRun else {
                report(
                    unit, "a supervisor has started it, and it is no unit of this file; a dry run leaves it as it is")
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
                if kept.isAlive { report(unit, "it is ended: a former supervisor left it, and it is no unit any more") }
                dismiss(kept, within: options.policy.grace)
            }
            postponed[unit.name] = nil
        } catch {
            if postpone(unit, isLeftover: true, for: error), let run { letGo(run) }
        }
    }

    /// Limits that a former supervisor has set for a while and could not lift, as its guard was killed with it.
    func liftLeftovers() {
        for name in ProcessNote.units(in: directory) {
            for limit in ProcessNote(directory, name).limits { limit.lift() }
        }
    }

    /// What runs already: as its origin says, or left by the supervisor before this one, which may have left it frozen.
    func takeOver(_ run: UnitRun) throws {
        try run.group.thaw()
        if case .process(let pid) = run.unit.origin {
            let child = try Child.adopt(pid)
            try run.group.enterTree(pid, sparing: Set(byProcess.keys).union([warden.pid]))
            run.child = child
            return began(run)
        }
        let noted = run.isOurs ? try ProcessNote(directory, run.unit.name).process() : nil
        // Where there are no groups, only the note says who it is.
        if let noted { run.group.note(noted.pid) }
        // So that the end of a former supervisor's throttling is not missed where that one was killed; whoever comes next would be slow as well.
        if run.isOurs { for limit in run.group.throttle().lift { limit.lift() } }
        if run.group.isEmpty { return }
        if run.isOurs { run.child = noted }
        began(run)
    }
}

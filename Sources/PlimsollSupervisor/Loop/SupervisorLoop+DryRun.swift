import Glibc
import Plimsoll

// A dry run looks at what runs, and leaves everything as it is.
extension SupervisorLoop {
    var isDryRun: Bool { options.policy.isDryRun }

    /// Whether a dry run may start a unit: no other supervisor has it. A second one of it might do everything twice.
    func startsItself(_ unit: ServiceUnit) -> Bool {
        guard case .command = unit.origin else { return false }
        return !SupervisorClaim.isHeld(options.directory)
            && !ProcessNote.units(in: options.directory).contains(unit.name)
    }

    /// Looks at a unit where it runs: as its origin says or, if it has a command, where the supervisor with the same directory has it, by that one's note.
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

    /// Another supervisor has had it stand still, or has let it go.
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

    /// Its sockets and notes go with it.
    func removeScratchDirectory() {
        for name in GroupText.names(in: directory) { unlink("\(directory)/\(name)") }
        rmdir(directory)
    }
}

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
                report(unit, "not running, and a dry run beside a supervisor starts no unit")
            }
        }
        if let child { group.note(child.pid) }
        let run = try keep(unit, group, isObserved: true)
        run.child = child
        guard !group.isEmpty else { return }
        began(run)
        followFreezer(run)
    }

    /// Records that another supervisor has frozen or thawed the unit.
    func followFreezer(_ run: UnitRun) {
        guard run.isObserved, run.state == .running || run.state == .suspended else { return }
        run.enter(run.group.isFrozen ? .suspended : .running, at: now)
    }

    static func scratchDirectory() throws(SupervisorError) -> String {
        var template = Array("/tmp/plimsoll-dry-run-XXXXXX".utf8CString)
        let path = template.withUnsafeMutableBufferPointer {
            $0.baseAddress.flatMap { mkdtemp($0) }.map { String(cString: $0) }
        }
        guard let path else {
            throw SupervisorError(
                "cannot make a directory in /tmp for the dry run: \(String(cString: strerror(errno)))")
        }
        return path
    }

    /// Removes the directory together with its sockets and notes.
    func removeScratchDirectory() {
        for name in HostKernel.listing(of: directory).names { unlink("\(directory)/\(name)") }
        rmdir(directory)
    }
}

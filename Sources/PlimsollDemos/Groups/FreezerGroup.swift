import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollSupervisor

/// A group whose processes the kernel can freeze and thaw all at once: `cgroup.freeze` of cgroup version 2, Linux 5.2
/// and later.
struct FreezerGroup {
    let directory: String
    private let program: String
    /// The group as the supervisor freezes and removes groups.
    private let unit: UnitGroup

    /// Error if no freezer group can be made; one sentence.
    struct Refusal: Error, CustomStringConvertible {
        var description: String
    }

    /// Makes a group below the own group, and tests that a process can enter. `program` is this program by default.
    init(_ name: String, program: String = ChildProcess.itself, own: ControlGroup = ControlGroup(HostKernel()))
        throws(Refusal)
    {
        guard case .directory(let parent, _) = own.unified else {
            if case .hidden(let reason) = own.unified { throw Refusal(description: reason) }
            throw Refusal(description: "no cgroup version 2")
        }
        let directory = parent + "/plimsoll-\(getpid())-\(name)"
        guard mkdir(directory, 0o755) == 0 else {
            throw Refusal(description: "\(directory): \(String(cString: strerror(errno)))")
        }
        (self.directory, self.program) = (directory, program)
        do throws(GroupError) {
            let group = try GroupDirectory(.unified, directory, isOurs: true)
            unit = try UnitGroup(name, [group], own: OwnGroups())
        } catch {
            rmdir(directory)
            throw Refusal(description: "\(error)")
        }
        guard unit.suspension == .freeze else {
            remove()
            throw Refusal(description: "\(directory) has no cgroup.freeze that can be written (Linux 5.2 and later)")
        }
        let guest = try? start(["--help"])
        guard let guest, guest.waitForEnd() == .exited(0) else {
            remove()
            throw Refusal(description: "cannot put a process into \(directory)")
        }
    }

    /// Starts this program in the group.
    func start(_ arguments: [String], endsWithParent: Bool = false) throws -> ChildProcess {
        try ChildProcess(
            program, ["plimsoll", "_enter", "--group", directory, "--path", program, "--", "plimsoll"] + arguments,
            readsOutput: true, endsWithParent: endsWithParent)
    }

    /// Requests a freeze of all processes. The freeze is complete once `isFrozen` is true.
    func freeze() throws(GroupError) { try unit.freeze() }
    func thaw() throws(GroupError) { try unit.thaw() }

    /// True if all processes are frozen. Freezing takes time (K36).
    var isFrozen: Bool { unit.isFrozen }

    /// Removes the group. All processes must have ended; otherwise returns false.
    @discardableResult
    func remove() -> Bool { (try? unit.remove()) != nil }
}

/// Starts processes inside a group, from their first instruction.
extension LimitedGroup {
    /// Starts `path` inside this group: this program enters the group first and then executes `path`.
    package func start(_ path: String, _ arguments: [String], readsOutput: Bool = false, endsWithParent: Bool = false)
        throws
        -> ChildProcess
    {
        let groups = directories.flatMap { ["--group", $0] }
        return try ChildProcess(
            ChildProcess.itself, ["plimsoll", "_enter"] + groups + ["--path", path, "--"] + arguments,
            readsOutput: readsOutput,
            endsWithParent: endsWithParent)
    }

    /// Starts a subcommand of this program.
    package func startPart(_ arguments: [String], readsOutput: Bool = true, endsWithParent: Bool = true) throws
        -> ChildProcess
    {
        try start(
            ChildProcess.itself, ["plimsoll"] + arguments, readsOutput: readsOutput, endsWithParent: endsWithParent)
    }
}

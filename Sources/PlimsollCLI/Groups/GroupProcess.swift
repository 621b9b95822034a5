import Plimsoll

/// Starting processes inside a group, from their first instruction.
extension LimitedGroup {
    /// Starts `path`, which is in this group before it runs: this program enters the group and then becomes it.
    func start(_ path: String, _ arguments: [String], readsOutput: Bool = false, leashed: Bool = false) throws -> ChildProcess {
        let groups = directories.flatMap { ["--group", $0] }
        return try ChildProcess(
            ChildProcess.itself, ["plimsoll", "_enter"] + groups + ["--path", path, "--"] + arguments, readsOutput: readsOutput,
            leashed: leashed)
    }

    /// Starts a part of this program itself.
    func startPart(_ arguments: [String], readsOutput: Bool = true, leashed: Bool = true) throws -> ChildProcess {
        try start(ChildProcess.itself, ["plimsoll"] + arguments, readsOutput: readsOutput, leashed: leashed)
    }
}

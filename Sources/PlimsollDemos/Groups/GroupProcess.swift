import Plimsoll

/// Starts processes inside a group, from their first instruction.
extension LimitedGroup {
    /// Starts `path` inside this group: this program enters the group first and then executes `path`.
    package func start(_ path: String, _ arguments: [String], readsOutput: Bool = false, leashed: Bool = false) throws
        -> ChildProcess
    {
        let groups = directories.flatMap { ["--group", $0] }
        return try ChildProcess(
            ChildProcess.itself, ["plimsoll", "_enter"] + groups + ["--path", path, "--"] + arguments,
            readsOutput: readsOutput,
            leashed: leashed)
    }

    /// Starts a subcommand of this program.
    package func startPart(_ arguments: [String], readsOutput: Bool = true, leashed: Bool = true) throws -> ChildProcess
    {
        try start(ChildProcess.itself, ["plimsoll"] + arguments, readsOutput: readsOutput, leashed: leashed)
    }
}

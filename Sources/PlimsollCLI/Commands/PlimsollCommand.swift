import ArgumentParser

/// The command `plimsoll`.
@main
struct PlimsollCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "plimsoll",
        abstract: "Sees how short memory really is under a cgroup limit, and what giving memory back in time is worth.",
        discussion: """
            Exit status: 0 done, 1 the thing asked failed, 64 usage, 69 a needed facility is unavailable (says which), 75 ended by pressure.
            """,
        subcommands: [
            DemoCommand.self, DoctorCommand.self, WatchCommand.self, RecordCommand.self, ReplayCommand.self, SimulateCommand.self,
            RunCommand.self, StressCommand.self, BenchCommand.self, EnterCommand.self, ServiceCommand.self, SubjectCommand.self,
            IdlerCommand.self, ChurnCommand.self,
        ])
}

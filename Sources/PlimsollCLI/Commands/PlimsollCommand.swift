import ArgumentParser
import Plimsoll
import PlimsollDemos

/// Entry point of the process.
@main
enum Program {
    static func main() { MainThread.run(PlimsollCommand.self) }
}

/// The command `plimsoll`.
struct PlimsollCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "plimsoll",
        abstract: "Measure memory pressure under a cgroup limit, operate services, and supervise units.",
        discussion: """
            Exit status: 0 done, 1 the request failed, 64 usage, 69 a needed facility is unavailable (the message names it), 75 ended by pressure.
            """,
        version: Version.current,
        subcommands: [
            DemoCommands.demo, DoctorCommand.self, StatusCommand.self, TopCommand.self, CachesCommand.self,
            TasksCommand.self, HeapCommand.self, PurgeCommand.self,
            ActivateCommand.self,
            WatchCommand.self, RecordCommand.self, ReplayCommand.self, SizeCommand.self, SimulateCommand.self,
            RunCommand.self, DemoCommands.supervise, ExplainCommand.self, AutopsyCommand.self, DemoCommands.stress,
        ] + DemoCommands.parts)
}

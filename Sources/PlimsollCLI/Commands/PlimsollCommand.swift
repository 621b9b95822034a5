import ArgumentParser
import Glibc

/// Entry point of the process.
@main
enum Program {
    /// Runs the command on the main thread. An asynchronous `main` would run on the runtime's thread pool. Pool
    /// threads block signals, and processes started there would inherit that mask. A signal blocked on a pool thread
    /// would still end this process through the main thread.
    static func main() {
        do {
            var command = try PlimsollCommand.parseAsRoot()
            guard let asynchronous = command as? any AsyncParsableCommand else { return try command.run() }
            runToExit(asynchronous)
        } catch {
            PlimsollCommand.exit(withError: error)
        }
    }

    /// Runs the commands that run a manager. They end with the process.
    private static func runToExit(_ command: sending any AsyncParsableCommand) -> Never {
        Task {
            var command = command
            do {
                try await command.run()
                PlimsollCommand.exit()
            } catch {
                PlimsollCommand.exit(withError: error)
            }
        }
        while true { pause() }
    }
}

/// The command `plimsoll`.
struct PlimsollCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "plimsoll",
        abstract: "Sees how short memory really is under a cgroup limit, and what giving memory back in time is worth.",
        discussion: """
            Exit status: 0 done, 1 the thing asked failed, 64 usage, 69 a needed facility is unavailable (says which), 75 ended by pressure.
            """,
        subcommands: [
            DemoCommand.self, DoctorCommand.self, StatusCommand.self, TopCommand.self, CachesCommand.self,
            TasksCommand.self, PurgeCommand.self,
            ActivateCommand.self,
            WatchCommand.self, RecordCommand.self, ReplayCommand.self, SimulateCommand.self,
            RunCommand.self, SuperviseCommand.self, ExplainCommand.self, StressCommand.self, BenchCommand.self,
            EnterCommand.self,
            ServiceCommand.self, LifecycleServiceCommand.self, GroupedServiceCommand.self,
            SubjectCommand.self, IdlerCommand.self, ChurnCommand.self, SaturateCommand.self, StateCommand.self,
            UnitCommand.self,
            AdminServiceCommand.self, FleetCommand.self, HostileCommand.self, IncidentPartCommand.self,
        ])
}

import ArgumentParser
import Foundation
import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollSupervisor

/// Runs units under a supervisor.
struct SuperviseCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "supervise", abstract: "Run services, and when memory is short suspend and end them in order.",
        discussion: """
            docs/Units.md tells what a units file says. SIGHUP reads it again and takes up what is different; SIGTERM ends all units, or leaves them to the \
            next supervisor with --leave-units. Exit status: 0 when stopped, 1 if it can't go on, 69 where no unit could be run in a group, 78 if the file is wrong.
            """)

    @Argument(help: "Units to run.", completion: .file(extensions: ["yaml", "yml"])) var file: String
    @Option(help: "For its sockets. (default: $RUNTIME_DIRECTORY, or plimsoll in $XDG_RUNTIME_DIR or /run)")
    var directory: String?
    @Option(help: "Where to append every decision and what came of it, for `explain`.") var audit: String?
    @Option(help: "What the names of its groups begin with.") var prefix = "plimsoll"
    @Flag(help: "Decide and tell, but do nothing to what runs.") var dryRun = false
    @Flag(help: "Print records as JSON lines.") var json = false
    @Flag(help: "Let units run on when it stops.") var leaveUnits = false
    @Flag(help: "Move into a group of its own if only that lets units have groups: for delegated groups.") var ownLeaf =
        false

    func run() throws {
        // Block signals on the first thread, before other threads exist.
        let signals = SignalQueue()
        let output = try reportingFailure { try PatientOutput(isJSON: json) }
        defer { output.finish() }
        do {
            let (units, policy) = try read()
            var options = Supervisor.Options(directory: try makeDirectory())
            (options.policy, options.audit, options.prefix) = (policy, audit, prefix)
            (options.leavesUnits, options.makesLeaf) = (leaveUnits, ownLeaf)
            let supervisor = try failing { try Supervisor(units, options) }
            supervisor.onProblem { output.error("plimsoll: \($0)") }
            supervisor.onRecord { [json] in output.line(json ? $0.line : Explanation.sentence($0)) }
            let listener = PlainThread { listen(signals, supervisor, output) }
            listener?.detach()
            output.line(
                json ? #"{"units":\#(units.count),"what":"running"}"# : "\(units.count) units; press Ctrl-C to end them"
            )
            do { try ServiceManager()?.tell("READY=1") } catch { output.error("plimsoll: \(error)") }
            try failing { try supervisor.run() }
        } catch let failure as Failure {
            output.error("plimsoll: " + failure.reason)
            throw failure.status
        }
    }

    private func read() throws -> ([ServiceUnit], SupervisorPolicy) {
        do {
            let file = try UnitsFile(path: file)
            var policy = try SupervisorPolicy(file.policy, file: self.file)
            policy.isDryRun = dryRun
            return (file.units, policy)
        } catch {
            throw Failure(status: ExitCode(78), reason: "\(error)")
        }
    }

    private func listen(_ signals: SignalQueue, _ supervisor: Supervisor, _ output: PatientOutput) {
        while true {
            guard let signal = signals.next(within: .seconds(3600)) else { continue }
            if signal == SIGHUP {
                // An invalid file changes nothing.
                do { supervisor.reload(try read().0) } catch {
                    output.error("plimsoll: \((error as? Failure)?.reason ?? "\(error)")")
                }
            } else if SignalQueue.endings.contains(signal) {
                supervisor.stop()
            }
        }
    }

    private func makeDirectory() throws -> String {
        func variable(_ name: String) -> String? {
            ProcessInfo.processInfo.environment[name].flatMap { $0.isEmpty ? nil : $0 }
        }
        let directory =
            directory ?? variable("RUNTIME_DIRECTORY") ?? (variable("XDG_RUNTIME_DIR") ?? "/run") + "/plimsoll"
        // A dry run makes no directory.
        guard dryRun || mkdir(directory, 0o711) == 0 || errno == EEXIST else {
            throw Failure.failed("\(directory): \(String(cString: strerror(errno)))")
        }
        return directory
    }

    private func failing<Result>(_ body: () throws -> Result) throws -> Result {
        do { return try body() } catch let failure as Failure { throw failure } catch {
            throw Failure.failed("\(error)")
        }
    }
}

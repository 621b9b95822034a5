import ArgumentParser
import Foundation
import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollSupervisor

/// Runs units under a supervisor.
struct SuperviseCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "supervise", abstract: "Run services, and suspend or end them in order when memory is short.",
        discussion: """
            docs/Units.md describes the units file. SIGHUP reads the file again and applies the differences; SIGTERM ends all units, or leaves them to the \
            next supervisor with --leave-units. Exit status: 0 when stopped, 1 after a fatal error, 69 if no unit can run in a group, 78 if the file is wrong.
            """)

    @Argument(help: "Units file, with the units to run.", completion: .file(extensions: ["yaml", "yml"])) var file:
        String
    @Option(
        help:
            "Directory for the supervisor's sockets. (default: the first in $RUNTIME_DIRECTORY, or plimsoll in $XDG_RUNTIME_DIR or /run)"
    )
    var directory: String?
    @Option(help: "File to append every decision and outcome to, for `explain`.") var audit: String?
    @Option(help: "Prefix of the names of the supervisor's groups.") var prefix = "plimsoll"
    @Flag(help: "Decide and report, without acting on units.") var dryRun = false
    @Flag(help: "Print records as JSON lines.") var json = false
    @Flag(help: "Leave units running when the supervisor stops.") var leaveUnits = false
    @Flag(
        help: "Move the supervisor into a group of its own if units cannot have groups otherwise: for delegated groups."
    ) var ownLeaf =
        false

    func run() throws {
        // Block signals on the first thread, before other threads exist.
        let signals = SignalQueue()
        let output = try reportingFailure { try PatientOutput(isJSON: json) }
        defer { output.finish() }
        do {
            let (units, policy) = try read()
            let directory = try makeDirectory()
            let supervisor = try failing {
                try Supervisor(
                    units, directory: directory, policy: policy, prefix: prefix, audit: audit,
                    leavesUnits: leaveUnits, makesLeaf: ownLeaf)
            }
            supervisor.onProblem { output.error("\(Output.program): \($0)") }
            supervisor.onRecord { [json] in output.line(json ? $0.line : Explanation.sentence($0)) }
            let listener = PlainThread { listen(signals, supervisor, output) }
            listener?.detach()
            output.line(
                json
                    ? #"{"units":\#(units.count),"what":"running"}"#
                    : "\(units.count) units; press Ctrl-C to end the units"
            )
            do { try ServiceManager()?.notify("READY=1") } catch { output.error("\(Output.program): \(error)") }
            try failing { try supervisor.run() }
        } catch let failure as Failure {
            output.error("\(Output.program): \(failure.reason)")
            throw failure.status
        }
    }

    private func read() throws -> ([ServiceUnit], SupervisorPolicy) {
        do {
            let file = try UnitsFile(path: file)
            var policy = try SupervisorPolicy(file)
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
                do {
                    let (units, policy) = try read()
                    supervisor.reload(units, policy: policy)
                } catch {
                    output.error("\(Output.program): \((error as? Failure)?.reason ?? "\(error)")")
                }
            } else if SignalQueue.endings.contains(signal) {
                supervisor.stop()
            }
        }
    }

    private func makeDirectory() throws -> String {
        let directory = directory ?? Self.standardDirectory(ProcessInfo.processInfo.environment)
        // A dry run makes no directory.
        guard dryRun || mkdir(directory, 0o711) == 0 || errno == EEXIST else {
            throw Failure.failed("cannot use \(directory): \(String(cString: strerror(errno)))")
        }
        return directory
    }

    /// Returns the directory for the sockets if the command line names none.
    static func standardDirectory(_ environment: [String: String]) -> String {
        // systemd.exec(5): colons separate several directories.
        if let directory = environment["RUNTIME_DIRECTORY"]?.split(separator: ":").first { return String(directory) }
        let parent = environment["XDG_RUNTIME_DIR"].flatMap { $0.isEmpty ? nil : $0 }
        return (parent ?? "/run") + "/plimsoll"
    }

    private func failing<Result>(_ body: () throws -> Result) throws -> Result {
        do { return try body() } catch let failure as Failure { throw failure } catch {
            throw Failure.failed("\(error)")
        }
    }
}

import ArgumentParser
import Glibc
import Plimsoll

/// Enters groups, then executes another program. The program's memory is charged to those groups from the start.
struct EnterCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_enter", abstract: "Part of `run`.", shouldDisplay: false)

    @Option(help: "Directory of a group to enter.") var group: [String] = []
    @Option(help: "What to become; found by PATH unless it holds a slash.") var path: String
    @Argument(parsing: .postTerminator, help: "Its arguments, its name first.") var arguments: [String] = []

    /// A shell's two exit statuses: the command cannot be run (126), the command does not exist (127).
    private static let cannotRun = ExitCode(126), notFound = ExitCode(127)

    func run() throws {
        for directory in group {
            do {
                // 0 means the writing process.
                try ControlFile.write("0", to: directory + "/cgroup.procs")
            } catch {
                Output.error("plimsoll: cannot enter \(error)")
                throw ExitCode(69)
            }
        }
        var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) }
        argv.append(nil)
        execvp(path, argv)
        let reason = errno
        Output.error("plimsoll: \(printable(path)): \(String(cString: strerror(reason)))")
        throw reason == ENOENT ? Self.notFound : Self.cannotRun
    }
}

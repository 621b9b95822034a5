import ArgumentParser
import Plimsoll
import PlimsollDemos
import PlimsollHeap
import PlimsollService

/// Lists the types in the heap of a process.
struct HeapCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "heap", abstract: "Count the objects in the heap of a process, by Swift type.",
        discussion: """
            Without --pid and command, a running service is asked, which reads its own memory while it goes on; nothing \
            is stopped or forked. Asked again, the service also tells what has grown.

            With --pid, this command reads the memory of that process, which need not know this library and goes on \
            meanwhile. With a command after `--`, the command is run, and the heap is counted each time that the \
            process has grown by a quarter, and just before its end. The largest census is printed on standard error. \
            Exit status: the command's own; 128 plus the number of the signal that ended it.

            "owned" counts blocks without a name to which an object of the type points.
            """)

    @Option(help: "Number of types to list, the largest first; 1 to 1000.") var rows = 40
    @Option(help: "Process to read, by its number.") var pid: Int32?
    @OptionGroup var admin: AdminOptions
    @Argument(parsing: .postTerminator, help: "Command to run and count, after `--`.") var command: [String] = []

    func validate() throws {
        guard (1...1000).contains(rows) else { throw ValidationError("--rows is \(rows); allowed is 1 to 1000.") }
        guard pid.map({ $0 > 0 }) ?? true else { throw ValidationError("--pid is \(pid ?? 0); a PID is at least 1.") }
        guard [pid != nil, admin.socket != nil, !command.isEmpty].count(where: { $0 }) <= 1 else {
            throw ValidationError("Only one of --pid, --socket and a command after `--` is allowed.")
        }
    }

    func run() throws {
        if let pid {
            let census = try reportingFailure {
                do { return try HeapCensus.take(of: pid) } catch { throw Failure.unavailable("\(error)") }
            }
            Output.line(text(census))
        } else if command.isEmpty {
            var request = AdminRequest(.heap)
            request.rows = rows
            try admin.ask(request) { $0.heap.map { HeapText.text($0) } ?? "" }
        } else {
            throw ExitCode(try reportingFailure { try runCommand() })
        }
    }

    private func runCommand() throws -> Int32 {
        let (ending, census) = try WatchedHeap.run(command)
        switch census {
        case .success(let census): Output.error(text(census))
        case .failure(let error): Output.problem(printable(error.description))
        }
        return ending.status
    }

    private func text(_ census: HeapCensus) -> String {
        var census = census
        let types = census.rows.count
        census.rows = Array(census.rows.prefix(rows))
        return admin.json ? JSONLine.encode(census) : HeapText.text(census, types: types)
    }
}

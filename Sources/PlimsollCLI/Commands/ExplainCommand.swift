import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollService
import PlimsollSupervisor

/// Prints the actions on a unit, or by a running service, with their reasons.
struct ExplainCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "explain",
        abstract: "Explain the actions of a running service, or of the supervisor on a unit.",
        discussion: "`explain` queries a running service; `explain UNIT --audit FILE` reads the supervisor's journal.")

    @Argument(help: "Unit to explain, with --audit.") var unit: String?
    @Option(help: "Journal that `supervise --audit` wrote.", completion: .file()) var audit: String?
    @Option(help: "Number of last actions of a service to show.") var last: Int?
    @OptionGroup var admin: AdminOptions

    func validate() throws {
        guard (unit == nil) == (audit == nil) else {
            throw ValidationError(
                "\(unit == nil ? "--audit FILE needs a UNIT" : "a UNIT needs --audit FILE, the supervisor's journal"); without both, a running service is queried."
            )
        }
        guard audit == nil || (admin.socket == nil && !admin.json && last == nil) else {
            throw ValidationError("--audit reads a file; --socket, --json and --last are for a running service.")
        }
        if let last { try Allowed.count(last, "--last", in: 1...256) }
    }

    func run() throws {
        guard let unit, let audit else {
            var request = AdminRequest(.explain)
            request.last = last
            return try admin.ask(request) { ($0.sentences ?? []).map { printable($0) }.joined(separator: "\n") }
        }
        try reportingFailure {
            guard let text = ControlFile.text(audit) else {
                throw Failure.failed("cannot read \(audit): \(String(cString: strerror(errno)))")
            }
            var records: [AuditRecord] = []
            for (number, line) in text.split(separator: "\n").enumerated() {
                do { records.append(try AuditRecord(parsing: line)) } catch {
                    Output.problem("\(audit):\(number + 1): \(error)")
                }
            }
            Output.line("\(Explanation(of: unit, from: records))")
        }
    }
}

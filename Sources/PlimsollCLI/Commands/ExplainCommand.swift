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
        abstract: "Tell what was done and why: by a running service, or by the supervisor to a unit.",
        discussion: "`explain` asks a running service; `explain UNIT --audit FILE` reads the supervisor's journal.")

    @Argument(help: "The unit, with --audit.") var unit: String?
    @Option(help: "The journal: what `supervise --audit` wrote.", completion: .file()) var audit: String?
    @Option(help: "Of a service: only its last actions, so many.") var last: Int?
    @OptionGroup var admin: AdminOptions

    func validate() throws {
        guard (unit == nil) == (audit == nil) else {
            throw ValidationError(
                "\(unit == nil ? "--audit FILE needs the UNIT that is asked for" : "a UNIT needs --audit FILE, the supervisor's journal"); without both a running service is asked."
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
                throw Failure.failed("\(audit): \(String(cString: strerror(errno)))")
            }
            var records: [AuditRecord] = []
            for (number, line) in text.split(separator: "\n").enumerated() {
                do { records.append(try AuditRecord(parsing: line)) } catch {
                    Output.error("plimsoll: \(audit):\(number + 1): \(error)")
                }
            }
            Output.line("\(Explanation(of: unit, from: records))")
        }
    }
}

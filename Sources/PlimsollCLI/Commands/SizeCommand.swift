import ArgumentParser
import Plimsoll
import PlimsollDemos
import PlimsollService

/// Tells which limit a service needs.
struct SizeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "size",
        abstract: "Tell which memory limit a service needs, and what a smaller one costs in load time.",
        discussion: """
            Reads a file of `plimsoll record --caches`, or asks a running service. Two or more caches without a \
            limit know how many misses another size would bring, unless PLIMSOLL_CACHES_DIVISION=proportional is set. \
            Record over a peak: the live memory is the largest of the recording.
            """)

    @Argument(
        help: "File made by `plimsoll record --caches`; a running service is asked without one.", completion: .file())
    var file: String?
    @OptionGroup var admin: AdminOptions

    func validate() throws {
        guard file == nil || (admin.socket == nil && !admin.json) else {
            throw ValidationError("FILE is read; --socket and --json are for a running service.")
        }
    }

    func run() throws {
        guard let file else {
            return try admin.ask(AdminRequest(.status)) { answer in
                Self.text(answer.status.flatMap { CachesRecord($0, at: .zero) }.map { [$0] } ?? [])
            }
        }
        try reportingFailure {
            let recording = try Recording(file: file)
            Output.line(Self.text(recording.caches))
            if let problem = recording.problem {
                throw Failure.failed(
                    "cannot read all of \(printable(file)), \(problem); the lines before were used")
            }
        }
    }

    /// Returns the advice as text.
    static func text(_ records: [CachesRecord]) -> String {
        guard !records.isEmpty else {
            return "Nothing is known of memory: the service has read none yet, or none was recorded."
        }
        let advice = SizeAdvice(records)
        let live = "live memory at peak \(advice.live), other purgeables \(advice.other)"
        guard !advice.names.isEmpty else {
            return live
                + "\nNo cache knows its curve: that takes two caches without a limit, divided by worth. Without caches, a"
                + " limit of \(advice.rows[0].limit) keeps this below the warning line."
        }
        let rows = advice.rows.map { row in
            [row.loss == 0 ? "none" : "\(Int((row.loss * 100).rounded())) %", "\(row.caches)", "\(row.limit)"]
        }
        var lines = [
            live + ", caches with a known curve: " + advice.names.map { printable($0) }.joined(separator: ", "), "",
            Text.table(["load time lost", "caches", "limit"], rows, numeric: true), "",
            "Lost is the part of the load time that these caches can save. Each limit keeps all this below the warning line.",
        ]
        if let most = advice.rows.first?.caches, most.bytes >= advice.known.bytes / 100 * 99 {
            lines.append("The curves end at \(advice.known): larger caches may save more.")
        }
        return lines.joined(separator: "\n")
    }
}

import ArgumentParser
import Plimsoll
import PlimsollDemos
import PlimsollTesting

/// Runs recorded readings through the standard policy.
struct ReplayCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "replay",
        abstract: "Run recorded readings through the standard policy: what would have been done, when and why.",
        discussion:
            "A damaged file is replayed up to the damage; then the line and the reason are named and the exit status is 1."
    )

    @Argument(help: "A file made by `plimsoll record`.", completion: .file()) var file: String
    @Flag(help: "One JSON line a change instead of drawing and table.") var json = false

    func run() throws {
        try reportingFailure {
            guard let text = ControlFile.text(file) else { throw Failure.failed("\(printable(file)) cannot be read") }
            let recording: Recording
            do {
                recording = try Recording(parsing: text)
            } catch {
                throw Failure.failed("\(printable(file)), \(error)")
            }
            show(recording)
            if let problem = recording.problem {
                throw Failure.failed("\(printable(file)), \(problem); what came before it was replayed")
            }
        }
    }

    private func show(_ recording: Recording) {
        let history = History(Simulation().run(recording.readings))
        if json {
            for change in history.changes { Output.line(JSONLine.encode(change.record)) }
            return
        }
        let header = recording.header
        Output.line(
            "\(recording.readings.count) readings, kernel \(printable(header.kernel)), \(header.processors) processors, footing \(printable(header.footing))"
        )
        let drawing = history.drawing
        Output.line("levels   \(drawing.levels)\nactions  \(drawing.actions)\n")
        Output.line(history.changes.isEmpty ? "Nothing would have been done." : history.table)
    }
}

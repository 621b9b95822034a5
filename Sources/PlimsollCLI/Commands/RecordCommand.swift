import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollTesting

/// Writes real readings to a file.
struct RecordCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "record", abstract: "Record real readings in a file, ten a second, for `plimsoll replay`.")

    @Argument(help: "File to write; an existing file is replaced.", completion: .file()) var file: String
    @Option(name: .customLong("for"), help: "Seconds to record; until Ctrl-C by default.") var seconds: Double?

    func validate() throws { try Allowed.seconds(seconds, "--for", in: 0.1...604_800) }

    func run() throws {
        try reportingFailure {
            let descriptor = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
            guard descriptor >= 0 else {
                throw Failure.failed("cannot open \(printable(file)): \(String(cString: strerror(errno)))")
            }
            defer { close(descriptor) }
            let live = LiveReadings()
            var isWritten = Output.write(
                JSONLine.encode(Recording.Header.here(live.capabilities)) + "\n", to: descriptor)
            var count = 0
            try live.forEach(every: .milliseconds(100), atMost: seconds.map { .seconds($0) }) { reading in
                // A whole line in one write: a recorder that is killed leaves a file that can be replayed.
                isWritten = isWritten && Output.write(JSONLine.encode(ReadingRecord(reading)) + "\n", to: descriptor)
                if isWritten { count += 1 }
                return isWritten
            }
            guard isWritten else {
                throw Failure.failed("cannot write \(printable(file)): \(String(cString: strerror(errno)))")
            }
            Output.error("\(count) readings in \(printable(file))")
        }
    }
}

/// Runs recorded readings through the standard policy.
struct ReplayCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "replay",
        abstract: "Run recorded readings through the standard policy, and show the actions, their times and reasons.",
        discussion:
            "A damaged file is replayed up to the damage. The error names the line and the reason, and the exit status is 1."
    )

    @Argument(help: "File made by `plimsoll record`.", completion: .file()) var file: String
    @Flag(help: "Print one JSON line per change instead of drawing and table.") var json = false

    func run() throws {
        try reportingFailure {
            guard let text = ControlFile.text(file) else { throw Failure.failed("cannot read \(printable(file))") }
            let recording: Recording
            do {
                recording = try Recording(parsing: text)
            } catch {
                throw Failure.failed("\(printable(file)), \(error)")
            }
            show(recording)
            if let problem = recording.problem {
                throw Failure.failed(
                    "cannot replay all of \(printable(file)), \(problem); the readings before were replayed")
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
            "\(recording.readings.count) readings, kernel \(printable(header.kernel)), \(header.processors) processors, support \(printable(header.support))"
        )
        let drawing = history.drawing
        Output.line("levels   \(drawing.levels)\nactions  \(drawing.actions)\n")
        Output.line(history.changes.isEmpty ? "No action would have been taken." : history.table)
    }
}

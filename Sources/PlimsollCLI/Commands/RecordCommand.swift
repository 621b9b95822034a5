import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollService
import PlimsollTesting

/// Writes real readings to a file.
struct RecordCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "record", abstract: "Record real readings in a file, ten a second, for `plimsoll replay`.")

    @Argument(help: "File to write; an existing file is replaced.", completion: .file()) var file: String
    @Flag(help: "Also record each second what memory is worth to the caches of a running service, for `plimsoll size`.")
    var caches = false
    @Option(help: "Admin socket of that service.", completion: .file()) var socket: String?
    @Option(name: .customLong("for"), help: "Seconds to record; until Ctrl-C by default.") var seconds: Double?

    func validate() throws {
        try Allowed.seconds(seconds, "--for", in: 0.1...604_800)
        guard caches || socket == nil else { throw ValidationError("--socket is for --caches.") }
    }

    func run() throws {
        try reportingFailure {
            // Before the file is replaced: a socket that does not answer costs no earlier recording.
            let service = caches ? try AdminOptions.connect(to: socket) : nil
            let descriptor = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
            guard descriptor >= 0 else {
                throw Failure.failed("cannot open \(printable(file)): \(String(cString: strerror(errno)))")
            }
            defer { close(descriptor) }
            let live = LiveReadings()
            var isWritten = Output.write(
                JSONLine.encode(Recording.Header.here(live.capabilities, hasCaches: caches)) + "\n", to: descriptor)
            var count = 0, asked = Duration.seconds(-1), problem: (any Error)?
            try live.forEach(every: .milliseconds(100), atMost: seconds.map { .seconds($0) }) { reading in
                // A whole line in one write: a recorder that is killed leaves a file that can be replayed.
                isWritten = isWritten && Output.write(JSONLine.encode(ReadingRecord(reading)) + "\n", to: descriptor)
                if isWritten { count += 1 }
                if let service, isWritten, reading.at >= asked + .seconds(1) {
                    asked = reading.at
                    do { isWritten = try record(service, at: reading.at, to: descriptor) } catch {
                        problem = error
                        return false
                    }
                }
                return isWritten
            }
            if let problem { throw problem }
            guard isWritten else {
                throw Failure.failed("cannot write \(printable(file)): \(String(cString: strerror(errno)))")
            }
            Output.error("\(count) readings in \(printable(file))")
        }
    }
}

extension RecordCommand {
    /// Writes a line with the caches of a service. Returns false if the file cannot be written.
    private func record(_ service: AdminClient, at time: Duration, to descriptor: Int32) throws -> Bool {
        let answer = try AdminOptions.failing { () throws(AdminError) in try service.answer(to: AdminRequest(.status)) }
        try AdminOptions.check(answer)
        guard let record = answer.status.flatMap({ CachesRecord($0, at: time) }) else { return true }
        return Output.write(JSONLine.encode(record) + "\n", to: descriptor)
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
            let recording = try Recording(file: file)
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

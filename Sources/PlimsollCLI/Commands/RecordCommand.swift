import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos

/// Writes real readings to a file.
struct RecordCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "record", abstract: "Write real readings to a file, ten a second, for `plimsoll replay`.")

    @Argument(help: "File to write; one that exists is replaced.", completion: .file()) var file: String
    @Option(name: .customLong("for"), help: "Seconds to record; until Ctrl-C by default.") var seconds: Double?

    func validate() throws { try Allowed.seconds(seconds, "--for", in: 0.1...604_800) }

    func run() throws {
        try reportingFailure {
            let descriptor = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
            guard descriptor >= 0 else {
                throw Failure.failed("\(printable(file)): \(String(cString: strerror(errno)))")
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
                throw Failure.failed("\(printable(file)) cannot be written: \(String(cString: strerror(errno)))")
            }
            Output.error("\(count) readings in \(printable(file))")
        }
    }
}

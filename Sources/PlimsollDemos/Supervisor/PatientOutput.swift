import Glibc
import Plimsoll
import PlimsollSupervisor

/// Standard output and standard error of a command that must never wait for a reader. Threads write the lines. Lines
/// that do not fit are dropped and counted.
final class PatientOutput: Sendable {
    private let output: LineWriter
    private let errors: LineWriter

    /// Starts the writers.
    ///
    /// - Parameter isJSON: true if lines on standard output are JSON.
    init(isJSON: Bool) throws {
        let output = LineWriter(STDOUT_FILENO) { trouble in
            guard case .dropped(let count) = trouble else { return nil }
            return Array((isJSON ? #"{"dropped":\#(count),"what":"dropped"}"# : Self.loss(count)).utf8) + [10]
        }
        let errors = LineWriter(STDERR_FILENO) { trouble in
            if case .dropped(let count) = trouble { Array("plimsoll: \(Self.loss(count))\n".utf8) } else { nil }
        }
        guard let output, let errors else {
            throw Failure.failed(
                "no thread could be started for its output; is the limit of processes reached (pids.max, RLIMIT_NPROC)?"
            )
        }
        (self.output, self.errors) = (output, errors)
    }

    private static func loss(_ count: Int) -> String {
        "\(count) lines were dropped here, as they were not read in time"
    }

    func line(_ text: String) { output.write(Array((text + "\n").utf8)) }
    func error(_ text: String) { errors.write(Array((text + "\n").utf8)) }

    /// Writes the rest, for at most two seconds each.
    func finish() { for writer in [output, errors] { writer.finish(within: .seconds(2)) } }
}

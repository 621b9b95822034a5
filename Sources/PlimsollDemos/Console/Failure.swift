package import ArgumentParser
import Glibc
import Synchronization

/// Error of a command that did not do what was asked: one sentence on standard error, and the exit status.
package struct Failure: Error {
    package var status: ExitCode
    package var reason: String

    /// Returns a failure of the request itself.
    package static func failed(_ reason: String) -> Failure { Failure(status: .failure, reason: reason) }
    /// Returns a failure for a facility that is unavailable (`EX_UNAVAILABLE`). The reason names the facility and the
    /// remedy.
    package static func unavailable(_ reason: String) -> Failure { Failure(status: ExitCode(69), reason: reason) }
}

/// Runs `body`. Prints a `Failure` on standard error and rethrows the exit status.
package func reportingFailure<Result>(_ body: () throws -> Result) throws -> Result {
    do {
        return try body()
    } catch let failure as Failure {
        Output.problem(failure.reason)
        throw failure.status
    }
}

/// Whole lines to the standard streams, unbuffered, so that output through a pipe is readable as events happen.
package enum Output {
    /// Name of the running program, for example `plimsoll` or `plimsoll-bench`.
    package static let program = CommandLine.arguments.first?.split(separator: "/").last.map(String.init) ?? "plimsoll"

    /// The errno of the last failed write to standard output; 0 if there is none. Relaxed: the number publishes nothing
    /// else.
    private static let lost = Atomic<Int32>(0)

    /// Prints a line. `check()` throws if that failed.
    package static func line(_ text: String) {
        if !write(text + "\n", to: STDOUT_FILENO) { lost.store(errno, ordering: .relaxed) }
    }
    /// Throws if output was lost, for example because the disk is full.
    package static func check() throws {
        let number = lost.load(ordering: .relaxed)
        guard number == 0 else {
            throw Failure.failed("cannot write all of the output: \(String(cString: strerror(number)))")
        }
    }
    package static func error(_ text: String) { write(text + "\n", to: STDERR_FILENO) }
    /// Prints an error message, which begins with the name of the program.
    package static func problem(_ text: String) { error("\(program): \(text)") }
    package static func raw(_ text: String) { write(text, to: STDOUT_FILENO) }
    package static var isTerminal: Bool { isatty(STDOUT_FILENO) == 1 }

    /// Writes all of `text`. Returns false if the descriptor accepts no more, for example because the reader is gone.
    @discardableResult
    package static func write(_ text: String, to descriptor: Int32) -> Bool {
        var text = text
        return text.withUTF8 { bytes in
            var rest = UnsafeRawBufferPointer(bytes)
            while !rest.isEmpty {
                let written = Glibc.write(descriptor, rest.baseAddress, rest.count)
                if written < 0 && errno == EINTR { continue }
                if written <= 0 {
                    // Output without a reader is not lost: commands that print without end stop in good order then.
                    if descriptor == STDOUT_FILENO, errno != EPIPE { lost.store(errno, ordering: .relaxed) }
                    return false
                }
                rest = UnsafeRawBufferPointer(rebasing: rest[written...])
            }
            return true
        }
    }
}

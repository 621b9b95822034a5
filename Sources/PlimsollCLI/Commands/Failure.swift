import ArgumentParser
import Glibc

/// Why a command ended without doing what was asked: one sentence on standard error, and the exit status.
struct Failure: Error {
    var status: ExitCode
    var reason: String

    /// The thing asked failed.
    static func failed(_ reason: String) -> Failure { Failure(status: .failure, reason: reason) }
    /// A needed facility is unavailable; the reason says which and what to do (`EX_UNAVAILABLE`).
    static func unavailable(_ reason: String) -> Failure { Failure(status: ExitCode(69), reason: reason) }
}

/// Runs `body`; a `Failure` becomes its sentence on standard error and its exit status.
func reportingFailure<Result>(_ body: () throws -> Result) throws -> Result {
    do {
        return try body()
    } catch let failure as Failure {
        Output.error("plimsoll: " + failure.reason)
        throw failure.status
    }
}

/// Whole lines to the standard streams, unbuffered: a narrative is read while it happens, also through a pipe.
enum Output {
    static func line(_ text: String) { write(text + "\n", to: STDOUT_FILENO) }
    static func error(_ text: String) { write(text + "\n", to: STDERR_FILENO) }
    static func raw(_ text: String) { write(text, to: STDOUT_FILENO) }
    static var isTerminal: Bool { isatty(STDOUT_FILENO) == 1 }

    /// Returns false when nobody reads any more.
    @discardableResult
    static func write(_ text: String, to descriptor: Int32) -> Bool {
        var text = text
        return text.withUTF8 { bytes in
            var rest = UnsafeRawBufferPointer(bytes)
            while !rest.isEmpty {
                let written = Glibc.write(descriptor, rest.baseAddress, rest.count)
                if written < 0 && errno == EINTR { continue }
                if written <= 0 { return false }
                rest = UnsafeRawBufferPointer(rebasing: rest[written...])
            }
            return true
        }
    }
}

import Glibc

/// A configuration that can't be taken: all of what is wrong with it.
public struct ConfigurationProblem: Error, Sendable, Hashable, CustomStringConvertible {
    /// Each with the key, the value and what is allowed.
    public var problems: [String]

    /// The exit status of a process that can't start for it (`EX_CONFIG` of sysexits.h).
    public static let exitStatus: Int32 = 78

    init(_ problems: [String]) { self.problems = problems }

    public var description: String { problems.joined(separator: "\n") }

    /// Returns what `body` returns. If the configuration can't be taken, or anything else is thrown, says on standard error why and exits with status 78.
    ///
    ///     let settings = ConfigurationProblem.orExit { try ServiceSettings.fromEnvironment() }
    // Of errors of any type: a closure that only calls what throws ConfigurationProblem has none of its own (Swift 6.3 infers `any Error`).
    public static func orExit<Result>(_ body: () throws -> Result) -> Result {
        do { return try body() } catch {
            let problems = (error as? ConfigurationProblem)?.problems ?? ["cannot read the configuration: \(error)"]
            let text = Array(problems.map { "plimsoll: \($0)\n" }.joined().utf8)
            _ = write(STDERR_FILENO, text, text.count)
            exit(exitStatus)
        }
    }
}

import Glibc

/// A configuration that cannot be used, with all of the problems found.
public struct ConfigurationProblem: Error, Sendable, Hashable, CustomStringConvertible {
    /// The problems, each with the key, the value and the allowed values.
    public var problems: [String]

    /// The exit status of a process that cannot start because of its configuration (`EX_CONFIG` of sysexits.h).
    public static let exitStatus: Int32 = 78

    init(_ problems: [String]) { self.problems = problems }

    public var description: String { problems.joined(separator: "\n") }

    /// Returns the result of `body`. On any error, prints the reason on standard error and exits with status 78.
    ///
    ///     let settings = ConfigurationProblem.orExit { try ServiceSettings.fromEnvironment() }
    // The closure may throw any error type. Swift 6.3 infers `any Error` for a closure, even if the closure throws
    // only `ConfigurationProblem`.
    public static func orExit<Result>(_ body: () throws -> Result) -> Result {
        do { return try body() } catch {
            let problems = (error as? ConfigurationProblem)?.problems ?? ["cannot read the configuration: \(error)"]
            let text = Array(problems.map { "plimsoll: \($0)\n" }.joined().utf8)
            _ = write(STDERR_FILENO, text, text.count)
            exit(exitStatus)
        }
    }
}

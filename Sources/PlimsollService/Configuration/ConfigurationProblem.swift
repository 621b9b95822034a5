import Glibc

/// A configuration that can't be taken: all of what is wrong with it.
public struct ConfigurationProblem: Error, Sendable, Hashable, CustomStringConvertible {
    /// Each with the key, the value and what is allowed.
    public var problems: [String]

    /// The exit status of a process that can't start for it (`EX_CONFIG` of sysexits.h).
    public static let exitStatus: Int32 = 78

    init(_ problems: [String]) { self.problems = problems }

    public var description: String { problems.joined(separator: "\n") }

    /// What `body` returns; if the configuration can't be taken, says on standard error why and exits with status 78.
    ///
    ///     let settings = ConfigurationProblem.orExit { try ServiceSettings.fromEnvironment() }
    public static func orExit<Result>(_ body: () throws(ConfigurationProblem) -> Result) -> Result {
        do throws(ConfigurationProblem) { return try body() } catch {
            let text = Array(error.problems.map { "plimsoll: \($0)\n" }.joined().utf8)
            _ = write(STDERR_FILENO, text, text.count)
            exit(exitStatus)
        }
    }
}

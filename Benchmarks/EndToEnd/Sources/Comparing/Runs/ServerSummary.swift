/// Summary of a server's run, printed as one line of JSON as the server ends.
public struct ServerSummary: Codable, Sendable, Equatable {
    /// Largest resident set, in bytes.
    public var peakResidentBytes = 0
    /// Pictures made, hits apart.
    public var picturesMade = 0
    /// Sessions made.
    public var sessionsMade = 0
    /// Seconds at each level; empty without a manager, like the following properties.
    public var secondsAtLevel: [String: Double] = [:]
    /// Changes of level.
    public var transitions: Int?
    /// Requests refused by the middleware, by priority and reason.
    public var refused: [String: UInt64] = [:]
    /// Exports that were asked to stop, or refused at their beginning.
    public var exportsStopped: Int?
    /// Longest unbroken time at a level above normal while no memory-taking request ran and 1.2 times the warning
    /// margin was available.
    public var heldSeconds: Double?
    /// Bytes of volatile memory that the kernel reclaimed; `nil` where the kernel does not count them.
    public var takenByKernelBytes: Int?

    public init() {}
}

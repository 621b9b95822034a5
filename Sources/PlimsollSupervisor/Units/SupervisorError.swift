/// Why the supervisor can't do what was asked.
public struct SupervisorError: Error, Sendable, Hashable, CustomStringConvertible {
    public var description: String

    init(_ description: String) { self.description = description }
}

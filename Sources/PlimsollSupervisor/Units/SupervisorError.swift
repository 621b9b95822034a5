/// The error for a request that the supervisor can't fulfil.
public struct SupervisorError: Error, Sendable, Hashable, CustomStringConvertible {
    public var description: String

    init(_ description: String) { self.description = description }
}

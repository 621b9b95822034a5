/// The time that one handler took.
public struct HandlerTiming: Sendable, Hashable {
    /// The name of the registration.
    public var name: String
    /// File and line of its registration.
    public var origin: String
    /// The time taken. For a handler that overran, the time it had been running.
    public var took: Duration
}

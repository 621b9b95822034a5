/// The time limits of life-cycle steps, and the action for handlers that overrun them.
public struct LifecyclePolicy: Sendable, Hashable {
    /// The time limit of all handlers together on the way into the background, and on the way back (C26).
    public var backgroundDeadline: Duration
    /// The time limit of all handlers together when the process or a scene terminates (C23).
    public var terminationDeadline: Duration
    /// Exit status with which the process ends when handlers outlast their deadline, as a phone would have it (C27).
    /// The process first writes a last line that names the handlers. With `nil`, a report names the handlers, and the
    /// step is taken without them.
    public var overrunStatus: Int32?
    /// True if the end of an interruption waits for `Lifecycle.resume()` (C25).
    public var resumesManually: Bool
    /// Idle time before a scene in the background is suspended automatically, in running time.
    ///
    /// Counts while the scene is unused and its background tasks have ended. `nil` disables automatic suspension.
    public var sceneSuspendsAfter: Duration?

    /// Creates a policy; the defaults are those of `standard`.
    public init(
        backgroundDeadline: Duration = .seconds(5), terminationDeadline: Duration = .seconds(5),
        overrunStatus: Int32? = nil, resumesManually: Bool = false, sceneSuspendsAfter: Duration? = .seconds(10)
    ) {
        self.backgroundDeadline = backgroundDeadline
        self.terminationDeadline = terminationDeadline
        self.overrunStatus = overrunStatus
        self.resumesManually = resumesManually
        self.sceneSuspendsAfter = sceneSuspendsAfter
    }

    /// Five seconds; reports name the handlers that overrun.
    public static let standard = LifecyclePolicy()
}

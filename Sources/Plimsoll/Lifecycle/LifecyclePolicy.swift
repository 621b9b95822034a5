/// How long the steps of the life cycle may take, and what is done about who takes longer.
public struct LifecyclePolicy: Sendable, Hashable {
    /// What all handlers together have on the way into the background, and on the way back (C26).
    public var backgroundDeadline: Duration
    /// What all have when the process or a scene terminates (C23).
    public var terminationDeadline: Duration
    /// What is done when handlers outlast their deadline (C27).
    public var overrun: Overrun
    /// Whether the end of an interruption waits for `Lifecycle.resume()` (C25).
    public var resumesManually: Bool
    /// How long a scene stays in the background, unused and with its background tasks ended, before it is suspended by itself; by running time. `nil` for as
    /// long as somebody says otherwise.
    public var sceneSuspendsAfter: Duration?

    /// A policy; the defaults are `standard`'s.
    public init(
        backgroundDeadline: Duration = .seconds(5), terminationDeadline: Duration = .seconds(5), overrun: Overrun = .report,
        resumesManually: Bool = false, sceneSuspendsAfter: Duration? = .seconds(10)
    ) {
        self.backgroundDeadline = backgroundDeadline
        self.terminationDeadline = terminationDeadline
        self.overrun = overrun
        self.resumesManually = resumesManually
        self.sceneSuspendsAfter = sceneSuspendsAfter
    }

    /// Five seconds; who takes longer is named.
    public static let standard = LifecyclePolicy()

    /// What is done about handlers that outlast their deadline.
    public enum Overrun: Sendable, Hashable {
        /// They are named in a report, and the step is taken without them.
        case report
        /// The process writes a last line that names them and exits with this status, as a phone would have it.
        case end(status: Int32)
    }
}

#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
public import Plimsoll
import PlimsollLifecycle
import Synchronization

/// Connects a service with its supervisor: reports the service's state, and carries out the supervisor's orders.
///
///     let manager = ResourceManager(source: LinuxPressureSource())
///     let link = try? SupervisorLink(manager)   // nil without a supervisor
///     try await manager.run()
///
/// The link reports the state, the number of background tasks, the bytes in caches, and the flags saved and locks held,
/// each on change. A ladder's `suspend` is passed on: the supervisor decides.
///
/// The link treats a level from the supervisor as announced. With a source other than `LinuxPressureSource` the level
/// is simulated for five seconds. On request the link releases memory, saves, goes to the background and comes back.
/// All of that runs on threads of the link and of the manager; the service never waits for the supervisor. Without a
/// supervisor to connect to, the link retries with growing pauses, and the service runs as it would alone.
///
/// The link lasts as long as the object, or until `close()`.
public final class SupervisorLink: Sendable {
    /// The environment variable that names the supervisor's socket.
    public static let variable = "PLIMSOLL_SUPERVISOR"

    /// The state of the link.
    package struct Status: Sendable, Hashable {
        package var isConnected = false
        /// Number of connections made so far.
        package var connections = 0
        /// The reason that the link is not connected, or was not before.
        package var problem: String?
        /// The last level received from this connection's supervisor.
        package var level = PressureLevel.normal
    }

    private let loop: LinkLoop
    private let transitions: Task<Void, Never>
    private let comingBack: Registration
    private let work: Registration
    private let suspension: Registration

    /// Connects `manager` with the supervisor that `$PLIMSOLL_SUPERVISOR` names.
    ///
    /// - Parameters:
    ///   - manager: the manager whose life cycle and caches are reported.
    ///   - onEnding: called on a thread of the manager when the supervisor will end the process, with the time until
    ///     then. By default the life cycle terminates in good order within that time.
    /// - Throws: `SupervisorLinkError` if the variable is not set or invalid, or no thread can be started. If no
    ///   supervisor listens there, the link retries and does not throw.
    public convenience init(_ manager: ResourceManager, onEnding: (@Sendable (_ grace: Duration) -> Void)? = nil) throws
    {
        try self.init(
            manager, path: getenv(Self.variable).map { String(cString: $0) }, kernel: HostKernel(), onEnding: onEnding)
    }

    package init(
        _ manager: ResourceManager, path: String?, kernel: any Kernel, firstPause: Duration = LinkPause.first,
        onEnding: (@Sendable (Duration) -> Void)? = nil
    ) throws {
        guard let path, !path.isEmpty else {
            throw SupervisorLinkError(
                "cannot connect to a supervisor because $\(Self.variable) is not set: the process runs without one",
                isAlone: true)
        }
        // sun_path has 108 bytes, including the terminating zero.
        guard path.hasPrefix("/"), path.utf8.count <= 107 else {
            throw SupervisorLinkError(
                "$\(Self.variable) is \"\(path.prefix(200))\"; allowed is an absolute path of at most 107 bytes")
        }
        let loop = LinkLoop(
            manager, path, kernel, LinkPause(first: firstPause), LinkOrders(manager, onEnding: onEnding))
        self.loop = loop
        transitions = Task { [wakeup = loop.wakeup, transitions = manager.lifecycle.transitions] in
            for await _ in transitions { wakeup.ring() }
        }
        // `saved` must be retracted before the service accepts new work. A service frozen a moment later is killed on
        // the strength of that message.
        comingBack = manager.lifecycle.onComingBack("supervisor link") { await loop.sendNow() }
        // For the same reason: a background task that begins after that message.
        work = manager.onWork { loop.sendNowBlocking() }
        suspension = manager.onSuspensionRequest { loop.requestSuspension() }
        guard Thread.start("plimsoll-link", { loop.run() }) else {
            transitions.cancel()
            comingBack.cancel()
            work.cancel()
            suspension.cancel()
            throw SupervisorLinkError(
                "cannot start a thread for the supervisor's link; check the limit of processes (pids.max, RLIMIT_NPROC)"
            )
        }
    }

    deinit { close() }

    /// Sends `bye` and ends the link. Idempotent.
    public func close() {
        transitions.cancel()
        // First: resumes tasks whose life cycle step waits for the link.
        loop.stop()
        comingBack.cancel()
        work.cancel()
        suspension.cancel()
    }

    package var status: Status { loop.status }

    /// Requests periodic wake-ups while suspended (C33); `nil` ends them. Each wake-up is reported as
    /// `Lifecycle.onResume`.
    ///
    /// - Returns: true if the request is granted. False also if the interval is below 600 s, and while there is no
    ///   supervisor.
    public func setKeepAlive(every interval: Duration?) async -> Bool {
        if let interval, interval < .seconds(600) || interval > .seconds(86_400) { return false }
        return await withCheckedContinuation { loop.ask(.keepAlive(every: interval ?? .zero), $0) }
    }
}

/// An error that prevents a link.
public struct SupervisorLinkError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The request, the reason for the failure, and the allowed values.
    public var description: String
    /// True if no link was requested: the variable is not set.
    public var isAlone: Bool

    init(_ description: String, isAlone: Bool = false) { (self.description, self.isAlone) = (description, isAlone) }
}

/// The back-off between connection attempts. Starts at a tenth of a second, as a supervisor that restarts is soon back,
/// and doubles up to ten seconds.
package struct LinkPause: Sendable {
    package static let first = Duration.milliseconds(100)
    static let longest = Duration.seconds(10)

    private let shortest: Duration
    private var next: Duration

    init(first: Duration) { (shortest, next) = (first, first) }

    mutating func taken() -> Duration {
        defer { next = min(next * 2, Self.longest) }
        // Jitter: all services of a lost supervisor reconnect at the same time, but need not (T29).
        return next * (1 + Double(getpid() % 16) / 32)
    }

    mutating func recovered() { next = shortest }
}
#endif

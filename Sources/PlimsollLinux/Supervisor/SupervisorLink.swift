import Glibc
public import Plimsoll
import Synchronization

/// Connects a service with its supervisor: tells what it does and holds, and does as it is told.
///
///     let manager = ResourceManager(source: LinuxPressureSource())
///     let link = try? SupervisorLink(manager)   // nil where nobody supervises
///     try await manager.run()
///
/// It tells the state, the number of background tasks, the bytes in caches, whether nothing would be lost and whether locks are held, each when it has changed.
/// A ladder's `suspend` is passed on to it: the supervisor decides. It takes a level for announced (with another source than `LinuxPressureSource`: rehearses it for five seconds), releases, saves, goes to the background and
/// comes back. All of that runs on threads of its own and of the manager's; the service never waits for the supervisor. While there is no supervisor to
/// connect to, it is tried again with growing pauses, and the service goes on as it would alone.
///
/// It lasts as long as it is kept, or until `close()`.
public final class SupervisorLink: Sendable {
    /// Names the supervisor's socket.
    public static let variable = "PLIMSOLL_SUPERVISOR"

    /// What has become of the link.
    public struct Status: Sendable, Hashable {
        public var isConnected = false
        /// How often it has connected.
        public var connections = 0
        /// Why it is not connected, or was not before.
        public var problem: String?
        /// The last level told by this connection's supervisor.
        public var level = PressureLevel.normal
    }

    private let loop: LinkLoop
    private let transitions: Task<Void, Never>
    private let comingBack: Registration
    private let standstill: Registration

    /// Connects `manager` with the supervisor that `$PLIMSOLL_SUPERVISOR` names.
    ///
    /// - Parameters:
    ///   - manager: whose life cycle and caches are told of.
    ///   - onEnding: called, on a thread of the manager's, when the supervisor will end the process, with the time until then. By default the life
    ///     cycle terminates in good order within that time.
    /// - Throws: `SupervisorLinkError` if the variable is not set or makes no sense, or no thread can be started. That nobody listens there is no error: it is
    ///   tried again.
    public convenience init(_ manager: ResourceManager, onEnding: (@Sendable (_ grace: Duration) -> Void)? = nil) throws {
        try self.init(manager, path: getenv(Self.variable).map { String(cString: $0) }, kernel: HostKernel(), onEnding: onEnding)
    }

    package init(
        _ manager: ResourceManager, path: String?, kernel: any Kernel, firstPause: Duration = LinkPause.first,
        onEnding: (@Sendable (Duration) -> Void)? = nil
    ) throws {
        guard let path, !path.isEmpty else {
            throw SupervisorLinkError("$\(Self.variable) is not set: nobody supervises this process", isAlone: true)
        }
        // sun_path has 108 bytes, with the zero at its end.
        guard path.hasPrefix("/"), path.utf8.count <= 107 else {
            throw SupervisorLinkError("$\(Self.variable) is \"\(path.prefix(200))\"; allowed is an absolute path of at most 107 bytes")
        }
        let loop = LinkLoop(manager, path, kernel, LinkPause(first: firstPause), LinkOrders(manager, onEnding: onEnding))
        self.loop = loop
        transitions = Task { [bell = loop.bell, transitions = manager.lifecycle.transitions] in for await _ in transitions { bell.ring() } }
        // That it is saved must be taken back before it accepts anything new: whoever is frozen a moment later is killed for its word.
        comingBack = manager.lifecycle.onComingBack("supervisor link") { await loop.tellNow() }
        standstill = manager.carryStandstill { loop.askForStandstill() }
        guard Thread.start("plimsoll-link", { loop.run() }) else {
            transitions.cancel()
            comingBack.cancel()
            standstill.cancel()
            throw SupervisorLinkError(
                "no thread could be started for the supervisor's link; is the limit of processes reached (pids.max, RLIMIT_NPROC)?")
        }
    }

    deinit { close() }

    /// Says goodbye and ends. Idempotent.
    public func close() {
        transitions.cancel()
        // First: who waits for the link in its life cycle goes on.
        loop.stop()
        comingBack.cancel()
        standstill.cancel()
    }

    public var status: Status { loop.status }

    /// Asks to be woken that often while suspended (C33); `nil` for not any more. Each wake is seen as `Lifecycle.onResume`.
    ///
    /// - Returns: whether it is granted. False also if the interval is below 600 s, and while there is no supervisor.
    public func setKeepAlive(every interval: Duration?) async -> Bool {
        if let interval, interval < .seconds(600) || interval > .seconds(86_400) { return false }
        return await withCheckedContinuation { loop.ask(.keepAlive(every: interval ?? .zero), $0) }
    }
}

/// Why there is no link.
public struct SupervisorLinkError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What was asked, why not, and what is allowed.
    public var description: String
    /// Nobody asked for a link: the variable is not set.
    public var isAlone: Bool

    init(_ description: String, isAlone: Bool = false) { (self.description, self.isAlone) = (description, isAlone) }
}

/// How long until the next attempt to connect: a tenth of a second at first, as a supervisor that restarts is soon back, doubling up to ten seconds.
package struct LinkPause: Sendable {
    package static let first = Duration.milliseconds(100)
    static let longest = Duration.seconds(10)

    private let shortest: Duration
    private var next: Duration

    init(first: Duration) { (shortest, next) = (first, first) }

    mutating func taken() -> Duration {
        defer { next = min(next * 2, Self.longest) }
        // All services of a supervisor that has gone come back at the same time, but need not (T29).
        return next * (1 + Double(getpid() % 16) / 32)
    }

    mutating func recovered() { next = shortest }
}

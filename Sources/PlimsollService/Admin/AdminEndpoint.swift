public import Plimsoll
import PlimsollLinux
import Synchronization

/// A UNIX socket at which an operator queries the manager of a service and, if allowed, triggers actions. Each
/// request and each answer is one line of JSON.
///
///     let admin = AdminEndpoint(manager: manager)
///     try admin.start()                                   // $RUNTIME_DIRECTORY/plimsoll.sock
///
///     $ plimsoll status
///
/// Only the service's own user and root get an answer. The socket file has the mode 0600 from the first instant, and
/// the kernel reports the user of each client.
/// Changes are refused unless `allowsChanges`. The endpoint runs on threads of its own, started before memory is
/// short. Code that frees memory never waits for the endpoint.
/// `docs/operations/admin.md` describes the protocol.
public final class AdminEndpoint: Sendable {
    /// Counts of requests and their outcomes, since the endpoint was created. Monotonic.
    package struct Counts: Sendable, Hashable, Codable {
        package var connections = 0
        /// Lines that were valid requests, regardless of the answer.
        package var requests = 0
        /// Refused requests and connections: read-only, another user, too many.
        package var refused = 0
        /// Lines that were not valid requests.
        package var malformed = 0
        /// Connections closed by the endpoint: idle, with an incomplete or too long line, or with an answer unread
        /// for too long.
        package var cutOff = 0
        /// Answers that could not be delivered because the client had gone.
        package var untaken = 0

        /// Creates counts of zero.
        package init() {}
    }

    /// Limits on the resources that clients may use.
    package struct Bounds: Sendable, Hashable {
        /// Bytes of a request, including the newline. From 64.
        package var line = 4096
        /// Concurrent connections. From 1 to 1024.
        package var connections = 16
        /// Connections that may watch at the same time. From 0.
        package var watchers = 4
        /// Changes that may wait while another change runs. From 0.
        package var changes = 4
        /// Longest time that a connection may be idle.
        package var idle = Duration.seconds(60)
        /// Longest time from the first byte of a request to the newline.
        package var request = Duration.seconds(5)
        /// Longest time until the client has read all of an answer.
        package var answer = Duration.seconds(10)

        /// Creates the default limits.
        package init() {}
    }

    private let handler: AdminCommandHandler
    private let bounds: Bounds
    private let requestedPath: String?
    private let time: Timekeeper
    private let tally: AdminTally
    private let server = Mutex<AdminServer?>(nil)

    /// Creates an endpoint that does not listen yet.
    ///
    /// - Parameters:
    ///   - manager: the manager to query.
    ///   - path: path of the socket, at most 107 bytes; `nil` for `plimsoll.sock` in `$RUNTIME_DIRECTORY`, or
    ///     `plimsoll-PID.sock` in `$XDG_RUNTIME_DIR`.
    ///   - allowsChanges: true to permit `purge`, `simulate`, `limit` and `activate`.
    public convenience init(manager: ResourceManager, path: String? = nil, allowsChanges: Bool = false) {
        self.init(manager: manager, path: path, allowsChanges: allowsChanges, bounds: Bounds(), time: .machine)
    }

    /// Creates an endpoint with a given clock.
    ///
    /// - Precondition: The bounds are in their ranges.
    package init(manager: ResourceManager, path: String?, allowsChanges: Bool, bounds: Bounds, time: Timekeeper) {
        precondition(
            bounds.line >= 64 && (1...1024).contains(bounds.connections) && bounds.watchers >= 0 && bounds.changes >= 0,
            "AdminEndpoint.Bounds: line is \(bounds.line) (64 or more), connections \(bounds.connections) (1 to 1024), watchers \(bounds.watchers), changes \(bounds.changes) (0 or more)"
        )
        let tally = AdminTally()
        self.tally = tally
        handler = AdminCommandHandler(
            manager: manager, allowsChanges: allowsChanges, time: time, counts: { tally.counts })
        (self.bounds, requestedPath, self.time) = (bounds, path, time)
    }

    deinit { server.withLock { $0.take() }?.stop() }

    /// Starts to listen. Does nothing if the endpoint listens already. May be called again after `stop()`.
    ///
    /// - Throws: `AdminError` with the reason and the remedy: no place for the socket, a path that is too long, a
    ///   socket in use by another process, no thread.
    public func start() throws(AdminError) {
        guard server.withLock({ $0 == nil }) else { return }
        let path: String
        if let requestedPath { path = requestedPath } else { path = try AdminPath.standard() }
        let new = try AdminServer(path: path, handler: handler, bounds: bounds, time: time, tally: tally)
        let isFirst = server.withLock { server in
            if server == nil { server = new }
            return server === new
        }
        // Another thread has started the endpoint meanwhile. With the same path, `AdminServer` usually refuses before
        // this point.
        guard isFirst else { return new.stop() }
        do throws(AdminError) {
            try new.start()
        } catch {
            stop()
            throw error
        }
    }

    /// Stops listening. The socket file is gone on return; connections are closed soon after. A running purge
    /// continues.
    public func stop() { server.withLock { $0.take() }?.stop() }

    /// The path of the socket while the endpoint listens; otherwise `nil`.
    public var path: String? { server.withLock { $0?.path } }

    /// Counts of requests since the endpoint was created.
    package var counts: Counts { tally.counts }

    /// Makes the loop check the clock at once. For tests that change the time.
    package func wake() { server.withLock { $0 }?.ring() }
}

/// The counts of an endpoint, shared between threads.
final class AdminTally: Sendable {
    private let state = Mutex(AdminEndpoint.Counts())
    var counts: AdminEndpoint.Counts { state.withLock { $0 } }
    func add(_ kind: any WritableKeyPath<AdminEndpoint.Counts, Int> & Sendable) {
        state.withLock { $0[keyPath: kind] += 1 }
    }
}

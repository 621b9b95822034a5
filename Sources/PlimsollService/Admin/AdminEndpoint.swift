public import Plimsoll
import PlimsollLinux
import Synchronization

/// A UNIX socket at which the operator of a service asks its manager what it knows, and, if that is allowed, has it act: a line of JSON there, a line back.
///
///     let admin = AdminEndpoint(manager: manager)
///     try admin.start()                                   // $RUNTIME_DIRECTORY/plimsoll.sock
///
///     $ plimsoll status
///
/// Only the service's own user and root get an answer: the socket's file has the mode 0600 from its first instant, and the kernel names who connects. Nothing is
/// changed unless `allowsChanges`. It serves on threads of its own, which exist before memory is short; what frees memory never waits for it.
/// `docs/operations/admin.md` tells the protocol.
public final class AdminEndpoint: Sendable {
    /// What was asked, and what came of it. Numbers only grow.
    public struct Counts: Sendable, Hashable, Codable {
        /// Connections accepted.
        public var connections = 0
        /// Lines that were requests, whatever was answered.
        public var requests = 0
        /// Requests and connections that were turned away: read-only, another user's, too many.
        public var refused = 0
        /// Lines that were none.
        public var malformed = 0
        /// Connections ended by the endpoint: silent, with half a line, or without taking the answer for too long; with a line that was too long.
        public var cutOff = 0
        /// Answers that nobody was there any more to take.
        public var untaken = 0

        /// None yet.
        public init() {}
    }

    /// How much anybody may take of it.
    public struct Bounds: Sendable, Hashable {
        /// Bytes of a request, its newline included. From 64.
        public var line = 4096
        /// Connections at once. From 1 to 1024.
        public var connections = 16
        /// Of them, how many may watch. From 0.
        public var watchers = 4
        /// Changes that wait for another one to be done. From 0.
        public var changes = 4
        /// How long a connection may say nothing.
        public var idle = Duration.seconds(60)
        /// How long a request may take to arrive, from its first byte to its newline.
        public var request = Duration.seconds(5)
        /// How long an answer may wait to be taken, all of it.
        public var answer = Duration.seconds(10)

        /// The usual ones.
        public init() {}
    }

    private let desk: AdminDesk
    private let bounds: Bounds
    private let wishedPath: String?
    private let time: Timekeeper
    private let tally: AdminTally
    private let server = Mutex<AdminServer?>(nil)

    /// An endpoint that does not listen yet.
    ///
    /// - Parameters:
    ///   - manager: who is asked.
    ///   - path: where to listen; `AdminPath.standard` if it is `nil`. At most 107 bytes.
    ///   - allowsChanges: whether `purge`, `simulate` and `limit` are carried out.
    ///   - bounds: how much anybody may take of it.
    public convenience init(manager: ResourceManager, path: String? = nil, allowsChanges: Bool = false, bounds: Bounds = Bounds()) {
        self.init(manager: manager, path: path, allowsChanges: allowsChanges, bounds: bounds, time: .machine)
    }

    /// - Precondition: the bounds are in their ranges.
    package init(manager: ResourceManager, path: String?, allowsChanges: Bool, bounds: Bounds, time: Timekeeper) {
        precondition(
            bounds.line >= 64 && (1...1024).contains(bounds.connections) && bounds.watchers >= 0 && bounds.changes >= 0,
            "AdminEndpoint.Bounds: line is \(bounds.line) (64 or more), connections \(bounds.connections) (1 to 1024), watchers \(bounds.watchers), changes \(bounds.changes) (0 or more)"
        )
        let tally = AdminTally()
        self.tally = tally
        desk = AdminDesk(manager: manager, allowsChanges: allowsChanges, counts: { tally.counts })
        (self.bounds, wishedPath, self.time) = (bounds, path, time)
    }

    deinit { server.withLock { $0.take() }?.stop() }

    /// Listens from now on. Does nothing if it does already; may be called again after `stop()`.
    ///
    /// - Throws: `AdminError` that says why not and what to do: no place for the socket, one that is too long, another process that listens there, no thread.
    public func start() throws(AdminError) {
        guard server.withLock({ $0 == nil }) else { return }
        let path: String
        if let wishedPath { path = wishedPath } else { path = try AdminPath.standard() }
        let new = try AdminServer(path: path, desk: desk, bounds: bounds, time: time, tally: tally)
        let isFirst = server.withLock { server in
            if server == nil { server = new }
            return server === new
        }
        // Somebody else started it meanwhile; with one path, as a rule, it is refused before this.
        guard isFirst else { return new.stop() }
        do throws(AdminError) {
            try new.start()
        } catch {
            stop()
            throw error
        }
    }

    /// Listens no more: its socket is gone when this returns, connections are closed soon after. A purge that is being carried out goes on.
    public func stop() { server.withLock { $0.take() }?.stop() }

    /// Where it listens; `nil` while it doesn't.
    public var path: String? { server.withLock { $0?.path } }

    /// What was asked since it was made.
    public var counts: Counts { tally.counts }

    /// Has it look at its clock at once. For tests that move it.
    package func wake() { server.withLock { $0 }?.ring() }
}

/// The counts, shared by those who count.
final class AdminTally: Sendable {
    private let state = Mutex(AdminEndpoint.Counts())
    var counts: AdminEndpoint.Counts { state.withLock { $0 } }
    func add(_ kind: any WritableKeyPath<AdminEndpoint.Counts, Int> & Sendable) { state.withLock { $0[keyPath: kind] += 1 } }
}

import Synchronization

/// A connection that is kept for later, and that knows whether it may have died meanwhile (C50).
///
/// While a process is frozen, or its host sleeps, the other side hangs up, and nobody tells. So after every such gap, and after every return from the
/// background, it is suspect until somebody has validated it.
///
///     guard let held = pool.take() else { … }
///     if held.isSuspect {
///         guard await held.connection.ping() else { return try await reconnects.run { try await connect() } }
///         held.validated()
///     }
public final class PooledConnection<Connection: Sendable>: Sendable {
    /// The connection.
    public let connection: Connection
    private let ground: ExclusiveGround
    /// Relaxed: a number on its own.
    private let epoch: Atomic<UInt64>

    init(_ connection: Connection, _ ground: ExclusiveGround) {
        self.connection = connection
        self.ground = ground
        epoch = Atomic(ground.connectionEpoch)
    }

    /// Whether it may have died since it was made or validated. True from the first instant after a gap, before anybody has noticed it.
    public var isSuspect: Bool { epoch.load(ordering: .relaxed) != ground.connectionEpoch || ground.isDoubtful }

    /// It was found to work.
    ///
    /// - Parameter since: the epoch in which looking began: if a gap has ended meanwhile it stays suspect.
    public func validated(since: UInt64? = nil) { epoch.store(since ?? ground.connectionEpoch, ordering: .relaxed) }

    /// The number of the present time without gaps, for `validated(since:)`.
    public var currentEpoch: UInt64 { ground.connectionEpoch }
}

extension ExclusiveResources {
    /// Stamps a connection that works now.
    public func pooled<Connection: Sendable>(_ connection: Connection) -> PooledConnection<Connection> { PooledConnection(connection, ground) }

    /// A bound on how many connections are made anew at once.
    ///
    /// - Parameters:
    ///   - most: at once; 1 or more.
    ///   - spread: time after a gap over which they begin.
    ///   - seed: makes the delays repeatable; by default they are random.
    public func reconnectLimiter(most: Int = 4, spread: Duration = .seconds(5), seed: UInt64? = nil) -> ReconnectLimiter {
        ReconnectLimiter(most: most, spread: spread, seed: seed ?? .random(in: .min ... .max), ground: ground, alarms: alarms)
    }
}

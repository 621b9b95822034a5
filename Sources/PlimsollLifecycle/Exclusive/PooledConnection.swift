import Synchronization

/// A pooled connection that tracks possible loss (C50).
///
/// While a process is frozen, or the host sleeps, the peer hangs up without notice. Therefore a connection is suspect
/// after every such gap, and after every return from the background, until the program has validated the connection.
///
///     guard let held = pool.take() else { … }
///     if held.isSuspect {
///         guard await held.connection.ping() else { return try await reconnects.run { try await connect() } }
///         held.validated()
///     }
public final class PooledConnection<Connection: Sendable>: Sendable {
    /// The connection.
    public let connection: Connection
    private let context: ExclusiveContext
    /// Relaxed: a single independent number.
    private let epoch: Atomic<UInt64>

    init(_ connection: Connection, _ context: ExclusiveContext) {
        self.connection = connection
        self.context = context
        epoch = Atomic(context.connectionEpoch)
    }

    /// True if the connection may have died since creation or the last validation. True from the first instant after
    /// a gap, before any thread has noticed the gap.
    public var isSuspect: Bool { epoch.load(ordering: .relaxed) != context.connectionEpoch || context.isDoubtful }

    /// Marks the connection as valid.
    ///
    /// - Parameter since: epoch in which the check began; if a gap has ended meanwhile, the connection stays suspect.
    public func validated(since: UInt64? = nil) { epoch.store(since ?? context.connectionEpoch, ordering: .relaxed) }

    /// The current epoch, for `validated(since:)`. Increases with each gap and each return from the background.
    public var currentEpoch: UInt64 { context.connectionEpoch }
}

extension ExclusiveResources {
    /// Creates a pooled connection from a connection that works now.
    public func pooled<Connection: Sendable>(_ connection: Connection) -> PooledConnection<Connection> {
        PooledConnection(connection, context)
    }

    /// Creates a limiter for the number of concurrent reconnections.
    ///
    /// - Parameters:
    ///   - most: most concurrent reconnections; 1 or more.
    ///   - spread: time after a gap over which reconnections begin.
    ///   - seed: makes the delays repeatable; random by default.
    public func reconnectLimiter(most: Int = 4, spread: Duration = .seconds(5), seed: UInt64? = nil) -> ReconnectLimiter
    {
        ReconnectLimiter(
            most: most, spread: spread, seed: seed ?? .random(in: .min ... .max), context: context, alarms: alarms)
    }
}

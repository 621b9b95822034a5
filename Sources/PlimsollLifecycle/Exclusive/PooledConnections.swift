import Synchronization

/// Pooled connections, and their possible loss (C50).
///
/// While a process is frozen, or the host sleeps, the peer hangs up without notice. Therefore a connection is suspect
/// after every such gap, and after every return from the background, until the program has validated the connection.
///
///     guard var held = pool.take() else { … }
///     if exclusive.isSuspect(since: held.epoch) {
///         let epoch = exclusive.connectionEpoch
///         guard await held.ping() else { return try await exclusive.reconnect("database") { try await connect() } }
///         held.epoch = epoch
///     }
extension ExclusiveResources {
    /// Number that increases with each gap and each return from the background. Store the number beside a connection
    /// when the connection is made; when validated, store the number read before the check.
    public var connectionEpoch: UInt64 { context.connectionEpoch }

    /// Returns true if a connection that worked in `epoch` may have died since. True from the first instant after a
    /// gap, before any thread has noticed the gap.
    public func isSuspect(since epoch: UInt64) -> Bool { epoch != context.connectionEpoch || context.isDoubtful }

    /// Runs `connect` with a bounded number of other reconnections to `peer` at once. After a gap, waits before for a
    /// random part of the spread time (T29).
    ///
    /// An event that thaws one process thaws neighbouring processes too, and they all call the same server. Random
    /// delays keep the processes apart; the bound limits the load from this one.
    ///
    /// - Parameters:
    ///   - peer: name of the server or pool. The first call for a name sets its bound and spread.
    ///   - most: most concurrent reconnections; 1 or more.
    ///   - spread: time after a gap over which reconnections begin.
    ///   - connect: makes the connection.
    /// - Throws: The error of `connect`; `CancellationError` if the task is cancelled while waiting.
    public func reconnect<Result>(
        _ peer: String, most: Int = 4, spread: Duration = .seconds(5), _ connect: () async throws -> Result
    ) async throws -> Result {
        let limiter = reconnects.withLock { limiters in
            if let limiter = limiters[peer] { return limiter }
            let limiter = reconnectLimiter(most: most, spread: spread, seed: .random(in: .min ... .max))
            limiters[peer] = limiter
            return limiter
        }
        return try await limiter.run(connect)
    }

    func reconnectLimiter(most: Int, spread: Duration, seed: UInt64) -> ReconnectLimiter {
        ReconnectLimiter(most: most, spread: spread, seed: seed, context: context, alarms: alarms)
    }
}

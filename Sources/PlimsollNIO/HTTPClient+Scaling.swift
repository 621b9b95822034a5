#if AsyncHTTPClient
public import AsyncHTTPClient
public import NIOCore
public import Plimsoll
import Synchronization

extension HTTPClient.Configuration {
    /// Returns this configuration with a smaller connection pool at `level`. Under a warning, the pool has half of
    /// the connections per host, and unused connections stay for at most 10 s. While memory is critical, the pool has
    /// a quarter of them, unused ones stay for at most 1 s, and no connection is opened in advance. At `normal` the
    /// configuration is unchanged.
    ///
    /// AsyncHTTPClient reads a configuration once, so this applies to a client created later, as `ScaledHTTPClient`
    /// does.
    public func scaled(for level: PressureLevel) -> HTTPClient.Configuration {
        var scaled = self
        let (part, idle): (Int, TimeAmount) =
            switch level {
            case .normal: (1, connectionPool.idleTimeout)
            case .warning: (2, .seconds(10))
            case .critical: (4, .seconds(1))
            }
        scaled.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = max(
            1, connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit / part)
        scaled.connectionPool.idleTimeout = min(connectionPool.idleTimeout, idle)
        scaled.connectionPool.preWarmedHTTP1ConnectionCount =
            level == .critical ? 0 : connectionPool.preWarmedHTTP1ConnectionCount / part
        return scaled
    }
}

/// An `HTTPClient` with a pool that follows the pressure level, and with idle connections that can be released.
///
/// AsyncHTTPClient supports neither: a client keeps one configuration, and closes idle connections only after a
/// timeout or with the client. `ScaledHTTPClient` therefore replaces the client. When the level changes, the next
/// request gets a new client. The old client, with buffers and idle connections, is shut down when the last request
/// over that client has ended. No request is interrupted. AsyncHTTPClient does not report the number of freed bytes,
/// so this class is not registered as a purgeable.
///
/// ```swift
/// let http = ScaledHTTPClient(manager: manager)
/// let page = try await http.withClient { client in
///     let response = try await client.execute(HTTPClientRequest(url: url), timeout: .seconds(10))
///     return try await response.body.collect(upTo: manager.collectLimit())
/// }
/// ```
public final class ScaledHTTPClient: Sendable {
    private final class Lease: Sendable {
        let client: HTTPClient
        let level: PressureLevel
        /// Changed under the state's lock, like retirement. The thread that finds a lease retired and without users
        /// shuts the client down.
        let users = Atomic<Int>(0)
        init(_ client: HTTPClient, _ level: PressureLevel) { (self.client, self.level) = (client, level) }
    }

    private struct State {
        var current: Lease?
        var isClosed = false
        var drained = 0
    }

    private let state = Mutex(State())
    private let configuration: HTTPClient.Configuration
    private let group: any EventLoopGroup
    private let levelNow: @Sendable () -> PressureLevel
    private let registration = Mutex<Registration?>(nil)

    /// Creates a client that follows the level of a manager.
    ///
    /// - Parameters:
    ///   - configuration: configuration of the client at `normal`.
    ///   - group: event loops for all clients.
    public init(
        manager: ResourceManager, configuration: HTTPClient.Configuration = HTTPClient.Configuration(),
        group: any EventLoopGroup = HTTPClient.defaultEventLoopGroup
    ) {
        (self.configuration, self.group) = (configuration, group)
        levelNow = { [weak manager] in manager?.level ?? .normal }
        let observer = manager.observe(from: .normal, "HTTP client") { [weak self] event in self?.follow(event.level) }
        registration.withLock { $0 = observer }
    }

    deinit {
        registration.withLock { $0 }?.cancel()
        if let last = state.withLock({ $0.current }) { _ = last.client.shutdown() }
    }

    /// Number of times that idle connections were released.
    public var drainCount: Int { state.withLock { $0.drained } }

    /// Calls `body` with the current client. `body` must not keep the client.
    ///
    /// - Throws: Errors of `body`; `HTTPClientError.alreadyShutdown` after `shutdown()`.
    public func withClient<Result>(_ body: (HTTPClient) async throws -> Result) async throws -> Result {
        let lease = try take()
        defer { giveBack(lease) }
        return try await body(lease.client)
    }

    /// Releases idle connections now, and connections in use when their request has ended. The next request gets new
    /// connections.
    public func drain() { retire { _ in true } }

    /// Shuts down: later requests are refused, running requests finish. Idempotent.
    public func shutdown() {
        registration.withLock { $0 }?.cancel()
        state.withLock { $0.isClosed = true }
        retire { _ in true }
    }

    private func follow(_ level: PressureLevel) { retire { $0.level != level } }

    private func retire(_ isWanted: (Lease) -> Bool) {
        let unused: Lease? = state.withLock { state in
            guard let lease = state.current, isWanted(lease) else { return nil }
            state.current = nil
            state.drained += 1
            return lease.users.load(ordering: .relaxed) == 0 ? lease : nil
        }
        // `shutdown()` does not block; the event loops close remaining connections.
        _ = unused?.client.shutdown()
    }

    private func take() throws -> Lease {
        try state.withLock { state in
            // Read under the lock: a level published later finds this client when the level is delivered.
            let level = levelNow()
            if state.isClosed { throw HTTPClientError.alreadyShutdown }
            let lease =
                state.current
                ?? Lease(HTTPClient(eventLoopGroup: group, configuration: configuration.scaled(for: level)), level)
            state.current = lease
            lease.users.add(1, ordering: .relaxed)
            return lease
        }
    }

    private func giveBack(_ lease: Lease) {
        let isLast = state.withLock { state in
            lease.users.subtract(1, ordering: .relaxed).newValue == 0 && state.current !== lease
        }
        if isLast { _ = lease.client.shutdown() }
    }
}
#endif

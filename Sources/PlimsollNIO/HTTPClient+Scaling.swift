#if AsyncHTTPClient
public import AsyncHTTPClient
public import NIOCore
public import Plimsoll
import Synchronization

extension HTTPClient.Configuration {
    /// This configuration with a pool that holds less at `level`: under a warning half of the connections a host, unused ones for 10 s at most; while memory is
    /// critical a quarter of them, unused ones for 1 s at most and none opened in advance. At `normal` it is unchanged.
    ///
    /// AsyncHTTPClient reads its configuration once: it is for a client to be made, such as `ScaledHTTPClient` makes.
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
        scaled.connectionPool.preWarmedHTTP1ConnectionCount = level == .critical ? 0 : connectionPool.preWarmedHTTP1ConnectionCount / part
        return scaled
    }
}

/// An `HTTPClient` whose pool follows the level, and whose idle connections can be let go of.
///
/// AsyncHTTPClient can do neither: a client keeps its configuration, and closes idle connections when their time is over or with the client. So there is a client
/// for each stretch of time. When the level changes the next request gets a new one; the old one, with its buffers and idle connections, is shut down when the last
/// request over it has ended. No request is cut short. How many bytes that frees AsyncHTTPClient doesn't tell, so it is registered for no share of a release.
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
        /// Guarded by the state's lock, as are its changes of meaning: shut down by whoever finds it retired and unused.
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

    /// - Parameters:
    ///   - configuration: of the client at `normal`.
    ///   - group: event loops for all the clients.
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

    /// How often idle connections were let go of.
    public var drainCount: Int { state.withLock { $0.drained } }

    /// Calls `body` with the client of the moment, which is not to be kept.
    ///
    /// - Throws: what `body` throws; `HTTPClientError.alreadyShutdown` after `shutdown()`.
    public func withClient<Result>(_ body: (HTTPClient) async throws -> Result) async throws -> Result {
        let lease = try take()
        defer { giveBack(lease) }
        return try await body(lease.client)
    }

    /// Lets go of idle connections, those in use when their request has ended. The next request gets new ones.
    public func drain() { retire { _ in true } }

    /// Ends it: requests to come are refused, those under way finished. Idempotent.
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
        // It waits for nobody; what it still closes is closed by its event loops.
        _ = unused?.client.shutdown()
    }

    private func take() throws -> Lease {
        let level = levelNow()
        return try state.withLock { state in
            if state.isClosed { throw HTTPClientError.alreadyShutdown }
            let lease = state.current ?? Lease(HTTPClient(eventLoopGroup: group, configuration: configuration.scaled(for: level)), level)
            state.current = lease
            lease.users.add(1, ordering: .relaxed)
            return lease
        }
    }

    private func giveBack(_ lease: Lease) {
        let isLast = state.withLock { state in lease.users.subtract(1, ordering: .relaxed).newValue == 0 && state.current !== lease }
        if isLast { _ = lease.client.shutdown() }
    }
}
#endif

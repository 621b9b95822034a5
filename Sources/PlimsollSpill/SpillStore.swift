#if Spill
/// A server, or another place outside this process, that stores spilled values.
///
/// `MemcachedStore` and `RedisStore` conform. In other implementations, connections may block, but each call must
/// return within the given timeout.
public protocol SpillStore: Sendable {
    /// Name in reports: kind and place of the store.
    var name: String { get }

    /// The largest accepted record, in bytes.
    var mostBytes: Int { get }

    /// Connects. Blocks a dedicated thread for about `timeout` at most.
    func connect(within timeout: Duration) throws(SpillError) -> any SpillConnection
}

/// A connection to a store, used by one thread. A connection is dropped after an error. A new one is made when the
/// store may be tried again.
public protocol SpillConnection: AnyObject {
    /// Stores `bytes` under `key`, for any time up to `age`.
    func put(_ key: String, _ bytes: [UInt8], age: Duration, within timeout: Duration) throws(SpillError)

    /// Returns the bytes under `key`; `nil` if there are none.
    ///
    /// - Parameter most: size limit; a longer answer is invalid and not read to the end.
    func get(_ key: String, most: Int, within timeout: Duration) throws(SpillError) -> [UInt8]?

    /// Removes the bytes under `key`. A missing key is not an error.
    func remove(_ key: String, within timeout: Duration) throws(SpillError)
}

/// A failed request to a store.
public struct SpillError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure.
    public enum Kind: Sendable, Hashable {
        /// No connection could be made: nothing was requested.
        case unreachable
        /// The store refused the request.
        case refused
        /// No answer arrived in time, or the connection was lost. The store may have carried out the request, or may
        /// do so later.
        case unanswered
        /// The answer is invalid: the store may have done anything.
        case nonsense
    }

    /// The kind of failure.
    public var kind: Kind
    /// The request, the store, and the reason.
    public var description: String

    /// Creates an error.
    public init(_ kind: Kind, _ description: String) { (self.kind, self.description) = (kind, description) }
}
#endif

#if Spill
/// The address of a server.
enum SpillEndpoint: Sendable, Hashable, CustomStringConvertible {
    case host(String, port: UInt16)
    /// The path of a socket.
    case socket(String)

    var description: String {
        switch self {
        case .host(let host, let port): "\(host):\(port)"
        case .socket(let path): path
        }
    }
}

/// Points in time on the machine's running time.
enum Instant {
    private static let start = SuspendingClock().now

    static var now: Duration { start.duration(to: SuspendingClock().now) }
    static func after(_ timeout: Duration) -> Duration { now + timeout }
}

extension Duration {
    /// The duration in milliseconds, at least 1, at most the largest C `int`.
    var milliseconds: Int32 {
        let (seconds, attoseconds) = components
        if seconds >= Int64(Int32.max / 1000) { return .max }
        return Int32(max(1, seconds * 1000 + attoseconds / 1_000_000_000_000_000))
    }
}
#endif

#if Spill
import Plimsoll

/// A server, or another place outside this process, that stores spilled values.
///
/// `memcached(host:)` and `redis(host:)` make such stores. In other stores, connections may block, but each call must
/// return within the given timeout.
public struct SpillStore: Sendable {
    /// Name in reports: kind and place of the store.
    public let name: String
    /// The largest accepted record, in bytes.
    public let mostBytes: Int
    private let connecting: @Sendable (_ timeout: Duration) throws(SpillError) -> any SpillConnection

    /// Creates a store from a closure that connects, and blocks a dedicated thread for about `timeout` at most.
    ///
    /// - Precondition: `mostBytes` is 0 or more.
    public init(
        name: String, mostBytes: Int,
        connect: @escaping @Sendable (_ timeout: Duration) throws(SpillError) -> any SpillConnection
    ) {
        precondition(mostBytes >= 0, "SpillStore \(name): mostBytes is \(mostBytes), allowed is 0 or more")
        (self.name, self.mostBytes, connecting) = (name, mostBytes, connect)
    }

    /// Connects. Blocks a dedicated thread for about `timeout` at most.
    public func connect(within timeout: Duration) throws(SpillError) -> any SpillConnection { try connecting(timeout) }
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
    enum Kind: Sendable, Hashable { case unreachable, refused, unanswered, malformed }

    let kind: Kind
    /// The request, the store, and the reason.
    public let description: String

    init(_ kind: Kind, _ description: String) { (self.kind, self.description) = (kind, description) }

    /// Creates the error of a connection that could not be made: nothing was requested.
    public static func unreachable(_ description: String) -> SpillError { .init(.unreachable, description) }

    /// Creates the error of a request that the store refused.
    public static func refused(_ description: String) -> SpillError { .init(.refused, description) }

    /// Creates the error of a request without an answer in time, or with a lost connection. The store may have carried
    /// out the request, or may do so later.
    public static func unanswered(_ description: String) -> SpillError { .init(.unanswered, description) }

    /// Creates the error of an invalid answer: the store may have done anything.
    public static func malformed(_ description: String) -> SpillError { .init(.malformed, description) }
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

extension Duration {
    /// The duration in milliseconds, at least 1, at most the largest C `int`.
    var milliseconds: Int32 { Int32(clamping: Swift.max(1, inNanoseconds / 1_000_000)) }
}
#endif

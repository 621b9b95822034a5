#if Spill
/// A server, or anything else outside this process, that what is purged goes to.
///
/// `MemcachedStore` and `RedisStore` are two. Another one makes connections whose calls block, and end by themselves within the time it was told.
public protocol SpillStore: Sendable {
    /// How reports name it: what it is and where.
    var name: String { get }

    /// The largest record it takes, in bytes.
    var mostBytes: Int { get }

    /// Connects. Blocks, on a thread that is there for it; within about `timeout`.
    func connect(within timeout: Duration) throws(SpillError) -> any SpillConnection
}

/// A connection to a store, used by one thread. After an error it is dropped, and another made when the store may be asked again.
public protocol SpillConnection: AnyObject {
    /// Keeps `bytes` under `key`, for as long as it sees fit but not longer than `age`.
    ///
    /// - Parameter key: at most 80 letters, digits and `:`.
    func put(_ key: String, _ bytes: [UInt8], age: Duration, within timeout: Duration) throws(SpillError)

    /// What is kept under `key`; `nil` if nothing is.
    ///
    /// - Parameter most: an answer of more bytes is nonsense, and is not waited for.
    func get(_ key: String, most: Int, within timeout: Duration) throws(SpillError) -> [UInt8]?

    /// Forgets what is kept under `key`; nothing kept is no error.
    func remove(_ key: String, within timeout: Duration) throws(SpillError)
}

/// A store that did not do what it was asked.
public struct SpillError: Error, Sendable, Hashable, CustomStringConvertible {
    /// In which way.
    public enum Kind: Sendable, Hashable {
        /// No connection could be made: nothing was asked.
        case unreachable
        /// It said no.
        case refused
        /// There was no answer in time, or the connection was lost: it may have done it, or may do it yet.
        case unanswered
        /// The answer makes no sense: it may have done anything.
        case nonsense
    }

    /// In which way.
    public var kind: Kind
    /// What was asked of which store, and why not.
    public var description: String

    /// An error that says so.
    public init(_ kind: Kind, _ description: String) { (self.kind, self.description) = (kind, description) }
}
#endif

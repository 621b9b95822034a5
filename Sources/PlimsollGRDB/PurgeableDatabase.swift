#if GRDB
public import GRDB
import GRDBSQLite
public import Plimsoll
import Synchronization

/// The limit of the page cache, shared by all connections of a database.
///
/// Each SQLite connection has a cache of its own, so each connection gets a part. If the limit is set on the
/// configuration before the database is opened, the readers of a pool use the limit too. A queue has one connection,
/// which gets the whole limit from the time at which its `PurgeableDatabase` is made.
public final class DatabaseCacheLimit: Sendable {
    // Relaxed: single numbers, read when a connection is opened.
    private let bytes: Atomic<Int>
    private let connections: Atomic<Int>
    let full: ByteCount

    /// Creates a limit and adds the limit to `configuration`.
    ///
    /// - Parameters:
    ///   - limit: bytes of page cache for all connections together.
    ///   - configuration: configuration that applies the limit to each opened connection.
    public init(_ limit: ByteCount, for configuration: inout Configuration) {
        full = limit
        bytes = Atomic(max(0, limit.bytes))
        // A configuration does not tell a pool from a queue.
        connections = Atomic(1 + configuration.maximumReaderCount)
        configuration.prepareDatabase { [self] database in try apply(to: database) }
    }

    /// The current limit.
    public var current: ByteCount { ByteCount(bytes.load(ordering: .relaxed)) }

    func set(_ limit: ByteCount) { bytes.store(max(0, limit.bytes), ordering: .relaxed) }

    /// Gives the whole limit to one connection.
    func setSingle() { connections.store(1, ordering: .relaxed) }

    /// Sets the page cache of one connection. A negative `cache_size` is a number of kibibytes.
    func apply(to database: Database) throws {
        let part = current.bytes / connections.load(ordering: .relaxed)
        try database.execute(sql: "PRAGMA cache_size = -\(max(16, part / 1024))")
    }
}

/// Makes the memory of a `DatabaseQueue` or `DatabasePool` purgeable. Register an instance with a manager.
///
/// Page caches and prepared statements are released, never the database. Users of the database can continue, at the
/// cost of reads from the kernel's page cache. A release never waits for a transaction. Work that cannot be done
/// within 100 ms is done when the connection is free, and counts at the next measurement.
///
/// ```swift
/// var configuration = Configuration()
/// let limit = DatabaseCacheLimit(.mebibytes(32), for: &configuration)
/// let pool = try DatabasePool(path: path, configuration: configuration)
/// manager.register(PurgeableDatabase(pool, limit: limit), purgesOnBackground: true)
/// ```
public final class PurgeableDatabase: Purgeable {
    public let name: String
    public let rebuildCost: RebuildCost

    private let database: any DatabaseWriter
    private let pool: DatabasePool?
    private let limit: DatabaseCacheLimit?
    // Relaxed: a number for reports, and a flag for a running measurement.
    private let measured = Atomic<Int>(0)
    private let isMeasuring = Atomic<Bool>(false)

    /// Number of registered pools, and total bytes of queue connections at the last measurement. SQLite reports the
    /// bytes of all connections of the process, and of the connection in use, but not of the readers of a pool.
    private static let others = Mutex((pools: 0, queueBytes: 0))

    /// Creates a purgeable for a database.
    ///
    /// - Parameters:
    ///   - database: kept open for as long as this object lives.
    ///   - name: name in reports.
    ///   - limit: the limit given to the database's configuration; with `nil` a manager can release memory, but not
    ///     restrict the cache.
    public init(
        _ database: any DatabaseWriter, name: String = "SQLite", limit: DatabaseCacheLimit? = nil,
        rebuildCost: RebuildCost = .cheap
    ) {
        (self.database, self.name, self.limit, self.rebuildCost) = (database, name, limit, rebuildCost)
        pool = database as? DatabasePool
        if pool != nil { Self.others.withLock { $0.pools += 1 } }
        if let limit, database is DatabaseQueue {
            limit.setSingle()
            database.asyncWriteWithoutTransaction { try? limit.apply(to: $0) }
        }
        measure(nil)
    }

    deinit {
        let (isPool, bytes) = (pool != nil, measured.load(ordering: .relaxed))
        Self.others.withLock { others in if isPool { others.pools -= 1 } else { others.queueBytes -= bytes } }
    }

    /// Bytes of page cache.
    ///
    /// For a queue: the bytes of the connection at the last successful measurement (`SQLITE_DBSTATUS_CACHE_USED`).
    /// For a pool: the bytes of all connections of the process (`SQLITE_STATUS_PAGECACHE_OVERFLOW`) minus the known
    /// bytes of queues, divided equally between the pools. The first 20 pages of each connection are allocated
    /// elsewhere and not counted there.
    public var heldBytes: Int {
        if pool != nil { return Self.poolBytes.bytes }
        let done = Parker()
        measure { done.unpark() }
        done.park(atMost: .milliseconds(20))
        return measured.load(ordering: .relaxed)
    }

    public func release(_ target: Int) -> Int {
        let before = heldBytes, done = Parker()
        pool?.releaseMemoryEventually()
        database.asyncWriteWithoutTransaction { [self] database in
            database.releaseMemory()
            note(Self.bytes(of: database))
            done.unpark()
        }
        done.park(atMost: .milliseconds(100))
        let after = pool == nil ? measured.load(ordering: .relaxed) : Self.poolBytes.bytes
        return max(0, before - after)
    }

    public func restrict(to limit: ByteCount?) {
        guard let own = self.limit else { return }
        own.set(min(own.full, limit ?? own.full))
        database.asyncWriteWithoutTransaction { try? own.apply(to: $0) }
        // Readers are reopened and then use the new limit. Running reads continue.
        pool?.invalidateReadOnlyConnections()
    }

    private func measure(_ done: (@Sendable () -> Void)?) {
        guard pool == nil else { return }
        // One measurement at a time: a connection that is busy for long gets no further requests.
        guard !isMeasuring.exchange(true, ordering: .relaxed) else { return }
        database.asyncWriteWithoutTransaction { [weak self] database in
            self?.note(Self.bytes(of: database))
            self?.isMeasuring.store(false, ordering: .relaxed)
            done?()
        }
    }

    private func note(_ bytes: Int) {
        let old = measured.exchange(bytes, ordering: .relaxed)
        if pool == nil { Self.others.withLock { $0.queueBytes += bytes - old } }
    }

    private static func bytes(of database: Database) -> Int {
        var now: Int32 = 0, most: Int32 = 0
        guard let connection = database.sqliteConnection,
            sqlite3_db_status(connection, SQLITE_DBSTATUS_CACHE_USED, &now, &most, 0) == SQLITE_OK
        else { return 0 }
        return Int(now)
    }

    private static var poolBytes: ByteCount {
        var now: Int64 = 0, most: Int64 = 0
        guard sqlite3_status64(SQLITE_STATUS_PAGECACHE_OVERFLOW, &now, &most, 0) == SQLITE_OK else { return .zero }
        let others = others.withLock { $0 }
        return ByteCount(max(0, Int(now) - others.queueBytes) / max(1, others.pools))
    }
}
#endif

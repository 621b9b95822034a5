#if GRDB
public import GRDB
import GRDBSQLite
public import Plimsoll
import Synchronization

/// How much page cache the connections of a database may have together.
///
/// Each SQLite connection has a cache of its own, so each gets its part. Given to the configuration before the database is opened, it also reaches the readers of a
/// pool.
public final class DatabaseCacheLimit: Sendable {
    // Relaxed: a number on its own, read when a connection is opened.
    private let bytes: Atomic<Int>
    let full: ByteCount
    private let connections: Int

    /// - Parameters:
    ///   - limit: bytes of page cache, of all connections together.
    ///   - configuration: has it set on each connection that is opened with it.
    public init(_ limit: ByteCount, for configuration: inout Configuration) {
        full = limit
        bytes = Atomic(max(0, limit.bytes))
        connections = 1 + configuration.maximumReaderCount
        configuration.prepareDatabase { [self] database in try apply(to: database) }
    }

    /// What it is now.
    public var current: ByteCount { ByteCount(bytes.load(ordering: .relaxed)) }

    func set(_ limit: ByteCount) { bytes.store(max(0, limit.bytes), ordering: .relaxed) }

    /// A negative `cache_size` is a number of kibibytes.
    func apply(to database: Database) throws { try database.execute(sql: "PRAGMA cache_size = -\(max(16, current.bytes / connections / 1024))") }
}

/// A `DatabaseQueue` or `DatabasePool` whose memory gives way: register it with a manager.
///
/// What is released are page caches and prepared statements, never the database: whoever has it goes on using it, and pays with reads from the page cache of the
/// kernel. Nothing of it waits for a transaction: what cannot be done within 100 ms is done when the connection is free, and counts when it is measured next.
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
    // Relaxed: a number for reports, and how many measurements are under way.
    private let measured = Atomic<Int>(0)
    private let isMeasuring = Atomic<Bool>(false)

    /// How many pools are registered, and what the connections of queues had when they were measured: SQLite tells what all connections of the process have, and
    /// what the connection has that one is using, but not what the readers of a pool have.
    private static let others = Mutex((pools: 0, queueBytes: 0))

    /// - Parameters:
    ///   - database: stays open as long as this object does.
    ///   - name: how reports name it.
    ///   - limit: what was given to its configuration; `nil` if nothing was: then a manager can release, but not restrict.
    public init(_ database: any DatabaseWriter, name: String = "SQLite", limit: DatabaseCacheLimit? = nil, rebuildCost: RebuildCost = .cheap) {
        (self.database, self.name, self.limit, self.rebuildCost) = (database, name, limit, rebuildCost)
        pool = database as? DatabasePool
        if pool != nil { Self.others.withLock { $0.pools += 1 } }
        measure(nil)
    }

    deinit {
        let (isPool, bytes) = (pool != nil, measured.load(ordering: .relaxed))
        Self.others.withLock { others in if isPool { others.pools -= 1 } else { others.queueBytes -= bytes } }
    }

    /// Bytes of page cache: of a queue what its connection has (`SQLITE_DBSTATUS_CACHE_USED`), as it was when it could last be asked; of a pool what all of the
    /// process's connections have (`SQLITE_STATUS_PAGECACHE_OVERFLOW`) less what is known to be queues', in equal parts if there are several pools. The first 20
    /// pages of each connection lie elsewhere and are not counted there.
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
        // Readers are opened anew, and meet the limit then; those that read go on.
        pool?.invalidateReadOnlyConnections()
    }

    private func measure(_ done: (@Sendable () -> Void)?) {
        guard pool == nil else { return }
        // One at a time: a connection that is busy for long is not asked again and again.
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

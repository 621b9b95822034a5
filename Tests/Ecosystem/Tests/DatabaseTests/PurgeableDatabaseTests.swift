import GRDB
import Plimsoll
import PlimsollGRDB
import PlimsollTesting
import TestServers
import Testing

/// SQLite releases memory, and the database stays usable.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PurgeableDatabaseTests {
    /// Fills a database with 8 MiB in 2000 rows.
    private func fill(_ database: any DatabaseWriter) async throws {
        try await database.write { database in
            try database.execute(sql: "CREATE TABLE page (id INTEGER PRIMARY KEY, bytes BLOB)")
            try database.execute(
                sql:
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) INSERT INTO page SELECT i, randomblob(4000) FROM n"
            )
        }
    }

    private func sum(_ reader: any DatabaseReader) async throws -> Int {
        try await reader.read { try Int.fetchOne($0, sql: "SELECT SUM(LENGTH(bytes)) FROM page") ?? 0 }
    }

    @Test func `C88 a queue's page cache is measured by SQLite, released and restricted, and the queue stays good`() async throws {
        let directory = try TemporaryDirectory("grdb")
        var configuration = Configuration()
        configuration.maximumReaderCount = 1
        let limit = DatabaseCacheLimit(.mebibytes(32), for: &configuration)
        let queue = try DatabaseQueue(path: directory.path("db"), configuration: configuration)
        try await fill(queue)
        let purgeable = PurgeableDatabase(queue, name: "orders", limit: limit)
        var held = 0, released = 0
        // Repeated from a full cache: on a busy machine the queue may measure or release later than the caller waits,
        // and the bytes then count at the next measurement.
        try await until("a release within the time that a release waits") {
            let total = try await sum(queue)
            #expect(total == 8_000_000)
            held = purgeable.heldBytes
            released = purgeable.release(.max)
            return held > 4 << 20 && released > 4 << 20
        }
        #expect(held > 4 << 20, "\(held)")
        #expect(released > 4 << 20 && purgeable.heldBytes < 1 << 20, "\(released) of \(held)")
        #expect(try await sum(queue) == 8_000_000)

        purgeable.restrict(to: .mebibytes(1))
        #expect(limit.current == .mebibytes(1))
        #expect(try await sum(queue) == 8_000_000)
        #expect(purgeable.heldBytes < 2 << 20, "the limit holds without a release")
        purgeable.restrict(to: nil)
        #expect(limit.current == .mebibytes(32))
        #expect(try await sum(queue) == 8_000_000)
        // A measurement that comes late counts at the next call.
        await until("a measurement of the grown cache") { purgeable.heldBytes > 4 << 20 }
    }

    @Test func `C88 a pool's idle readers close too, and busy readers continue`() async throws {
        let directory = try TemporaryDirectory("grdb")
        let path = directory.path("db"), manager = ResourceManager(source: ScriptedPressureSource())
        var configuration = Configuration()
        let limit = DatabaseCacheLimit(.mebibytes(64), for: &configuration)
        let pool = try DatabasePool(path: path, configuration: configuration)
        let purgeable = PurgeableDatabase(pool, limit: limit)
        manager.register(purgeable, purgesOnBackground: true)
        try await fill(pool)
        #expect(try await sum(pool) == 8_000_000)
        let held = purgeable.heldBytes
        #expect(held > 8 << 20, "the writer's and a reader's: \(held)")
        // A reader in the middle of a query reads to the end.
        let rows = try await pool.read { database in
            var rows = 0
            let cursor = try Row.fetchCursor(database, sql: "SELECT bytes FROM page")
            while try cursor.next() != nil {
                rows += 1
                if rows == 1000 { _ = purgeable.release(.max) }
            }
            return rows
        }
        #expect(rows == 2000)
        await until { purgeable.release(.max) == .zero && purgeable.heldBytes < 2 << 20 }
        #expect(try await sum(pool) == 8_000_000)
    }

    @Test func `the one connection of a queue gets the whole limit, and a pool's connections divide it`() async throws {
        let directory = try TemporaryDirectory("grdb")
        func pages(_ database: any DatabaseWriter) async throws -> Int? {
            try await database.write { try Int.fetchOne($0, sql: "PRAGMA cache_size") }
        }
        // Five readers beside the writer, the default.
        var one = Configuration(), many = Configuration()
        let whole = DatabaseCacheLimit(.mebibytes(30), for: &one)
        let divided = DatabaseCacheLimit(.mebibytes(30), for: &many)
        let queue = try DatabaseQueue(path: directory.path("queue"), configuration: one)
        let pool = try DatabasePool(path: directory.path("pool"), configuration: many)
        let purgeables = [PurgeableDatabase(queue, limit: whole), PurgeableDatabase(pool, limit: divided)]
        #expect(try await pages(queue) == -30 * 1024)
        #expect(try await pages(pool) == -5 * 1024)
        purgeables[0].restrict(to: .mebibytes(12))
        #expect(try await pages(queue) == -12 * 1024)
        withExtendedLifetime(purgeables) {}
    }

    @Test func `a release does not wait for a long transaction`() async throws {
        let directory = try TemporaryDirectory("grdb"), queue = try DatabaseQueue(path: directory.path("db"))
        try await fill(queue)
        let purgeable = PurgeableDatabase(queue)
        #expect(try await sum(queue) == 8_000_000 && purgeable.heldBytes > 1 << 20)
        try await queue.write { _ in
            // A release from within the transaction would never return if it waited for the transaction.
            #expect(purgeable.release(.max) == .zero)
        }
        await until { purgeable.heldBytes < 1 << 20 }
    }

    @Test func `the article's snippets match this file`() throws { #expect(try Article.missingLines(of: "GRDB", in: #filePath) == []) }
}

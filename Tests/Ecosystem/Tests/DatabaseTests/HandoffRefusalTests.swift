import Foundation
import Plimsoll
import PlimsollLifecycle
import PlimsollPostgreSQL
import TestServers
import Testing

/// A real server that refuses a request, and the requests after the refusal.
@Suite(
    .serialized, .timeLimit(.minutes(5)),
    .enabled(if: PostgreSQLServer.isInstalled, Comment(rawValue: PostgreSQLServer.reason)))
struct HandoffRefusalTests {
    /// Makes the server refuse the first `count` inserts of tasks called "bad", with `state` as the reason.
    private static func refuse(_ server: PostgreSQLServer, state: String, count: Int = .max) async throws {
        try await server.sql(
            """
            create sequence refusals;
            create function refuse() returns trigger language plpgsql as $$ begin
              if new.name = 'bad' and nextval('refusals') <= \(count) then
                raise exception 'limit %', current_setting('statement_timeout') using errcode = '\(state)';
              end if;
              return new;
            end $$;
            create trigger refusing before insert on plimsoll_handoff for each row execute function refuse();
            """)
    }

    private static func offer(_ name: String, to store: PostgreSQLTaskHandoff) async throws(TaskHandoffError)
        -> HandedOffTask
    {
        try await store.offer(
            HandedOffTask(name: name, checkpoint: [1], reason: .pressure), heldBy: "one", for: .seconds(3600))
    }

    @Test(arguments: [("23514", true), ("P0001", true), ("57014", false)])
    func `a refusal is one request's error, and the same connection serves the next request`(
        state: String, isRefused: Bool
    ) async throws {
        let server = try await PostgreSQLServer(), store = server.store()
        _ = try await store.census()
        try await Self.refuse(server, state: state)
        for _ in 0..<3 {
            let error = await #expect(throws: TaskHandoffError.self) { try await Self.offer("bad", to: store) }
            #expect(
                error?.isRefused == isRefused && error?.isUnanswered == !isRefused && error?.description.contains("SQLSTATE \(state)") == true,
                "\(String(describing: error))")
            // A statement may take 60 s here. The server's own limit comes first.
            #expect(error?.description.contains("limit 54s") == true, "\(String(describing: error))")
            #expect(try await Self.offer("good", to: store).fence == 1)
        }
        let statistics = store.statistics
        #expect(statistics.connections == 1 && statistics.repeated == 0 && statistics.answered == 4, "\(statistics)")
        #expect(isRefused ? statistics.refused == 3 : statistics.unanswered == 3, "\(statistics)")
    }

    @Test(arguments: ["40001", "40P01"])
    func `a conflict with another transaction repeats the statement`(state: String) async throws {
        let server = try await PostgreSQLServer(), store = server.store()
        _ = try await store.census()
        try await Self.refuse(server, state: state, count: 3)
        #expect(try await Self.offer("bad", to: store).fence == 1)
        #expect(store.statistics.repeated == 3 && store.statistics.connections == 1 && store.statistics.refused == 0)
        #expect(try await store.census() == (0, 1, 0), "done once")
    }

    @Test func `an endless conflict is an error after eight attempts, and the connection goes on`() async throws {
        let server = try await PostgreSQLServer(), store = server.store()
        _ = try await store.census()
        try await Self.refuse(server, state: "40001")
        let error = await #expect(throws: TaskHandoffError.self) { try await Self.offer("bad", to: store) }
        #expect(
            error?.isRefused == true && error?.description.contains("SQLSTATE 40001") == true,
            "\(String(describing: error))")
        #expect(store.statistics.repeated == 7 && store.statistics.refused == 1)
        #expect(try await Self.offer("good", to: store).fence == 1)
        #expect(store.statistics.connections == 1)
    }

    @Test func `two transactions that really conflict are both carried out`() async throws {
        let server = try await PostgreSQLServer()
        let serializable = PostgreSQLTaskHandoff(
            server.conninfo + " options='-c default_transaction_isolation=serializable'", settings: .patient)
        for number in 0..<40 {
            _ = try await serializable.offer(
                HandedOffTask(name: "a", checkpoint: [UInt8(number)], reason: .pressure), heldBy: "x", for: .zero)
        }
        let stores = (0..<4).map { _ in
            PostgreSQLTaskHandoff(
                server.conninfo + " options='-c default_transaction_isolation=serializable'", settings: .patient)
        }
        let taken = try await withThrowingTaskGroup(of: [UInt8].self) { group in
            for (index, store) in stores.enumerated() {
                group.addTask {
                    var mine: [UInt8] = []
                    while mine.count < 10 {
                        // More than eight conflicts in a row are an error, and the work is still there.
                        do {
                            guard let work = try await store.take(["a"], by: "replica \(index)", for: .seconds(3600))
                            else { break }
                            mine += work.checkpoint
                        } catch let error as TaskHandoffError {
                            #expect(error.isRefused && error.description.contains("SQLSTATE 40001"), "\(error)")
                        }
                    }
                    return mine
                }
            }
            return try await group.reduce(into: []) { $0 += $1 }
        }
        #expect(taken.sorted() == (0..<40).map { UInt8($0) })
        #expect(stores.allSatisfy { $0.statistics.connections == 1 })
    }

    @Test func `a statement that an operator cancels is an error, and the same connection serves the next`()
        async throws
    {
        let server = try await PostgreSQLServer(), store = server.store()
        _ = try await store.census()
        let directory = try TemporaryDirectory("lock"), log = directory.url.appendingPathComponent("log")
        let psql = try #require(ServerProcess.find("psql"))
        let holder = try ServerProcess(
            [
                psql, server.conninfo, "-c", "set application_name = holder", "-c",
                "begin; lock table plimsoll_handoff in access exclusive mode; select pg_sleep(600)",
            ], log: log)
        defer { holder.signal(SIGKILL) }
        func holds(_ condition: String) async throws -> Bool {
            (try? await server.sql("select 1 / (\(condition))::integer")) != nil
        }
        try await until {
            try await holds(
                "exists (select from pg_locks where relation = 'plimsoll_handoff'::regclass and mode = 'AccessExclusiveLock' and granted)"
            )
        }
        let census = Task { try await store.census() }
        try await until {
            try await holds("exists (select from pg_locks where relation = 'plimsoll_handoff'::regclass and not granted)")
        }
        try await server.sql(
            "select pg_cancel_backend(pid) from pg_locks where relation = 'plimsoll_handoff'::regclass and not granted")
        let error = await #expect(throws: TaskHandoffError.self) { try await census.value }
        #expect(
            error?.isUnanswered == true && error?.description.contains("SQLSTATE 57014") == true,
            "\(String(describing: error))")
        await holder.kill()
        try await server.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'holder'")
        #expect(try await store.census() == (0, 0, 0))
        #expect(store.statistics.connections == 1 && store.statistics.unanswered == 1)
    }

    @Test func `a read-only server counts as down, and the client reconnects until the server accepts writes`() async throws {
        let server = try await PostgreSQLServer(), store = server.store()
        _ = try await Self.offer("good", to: store)
        #expect(store.statistics.connections == 1)
        try await server.sql("alter system set default_transaction_read_only = on")
        try await server.sql("select pg_reload_conf()")
        // Sessions follow a reload with a delay.
        var problem: TaskHandoffError?
        await untilAnswer {
            do throws(TaskHandoffError) { _ = try await Self.offer("good", to: store) } catch { problem = error }
            return problem != nil
        }
        #expect(
            problem?.isUnreachable == true && problem?.description.contains("SQLSTATE 25006") == true,
            "\(String(describing: problem))")
        var settings = PostgreSQLTimes.patient
        (settings.shortestPause, settings.longestPause) = (.seconds(3600), .seconds(3600))
        let fresh = server.store(TaskHandoffPolicy(), settings)
        #expect(await #expect(throws: TaskHandoffError.self) { try await fresh.census() }?.isUnreachable == true)
        _ = await #expect(throws: TaskHandoffError.self) { try await fresh.census() }
        #expect(fresh.statistics.skipped == 1 && fresh.statistics.connections == 0, "no connection is tried meanwhile")
        try await server.sql("alter system reset default_transaction_read_only")
        try await server.sql("select pg_reload_conf()")
        await untilAnswer { (try? await Self.offer("good", to: store)) != nil }
        #expect(store.statistics.connections == 2)
    }

    @Test func `a connection is prepared in one transaction, and the lock ends with that transaction`() async throws {
        let server = try await PostgreSQLServer()
        try await server.sql("alter system set log_statement = 'all'")
        try await server.sql("select pg_reload_conf()")
        await until {
            // A new session has the setting at once when the server has.
            (try? await server.sql("select 1 / (current_setting('log_statement') = 'all')::integer")) != nil
        }
        let store = server.store()
        _ = try await store.census()
        // A message of the log begins with a time. The later lines of a statement begin with a tab.
        let messages = try server.logged().components(separatedBy: " LOG:  ")
        let locking = messages.filter { $0.contains("advisory") }
        #expect(locking.count == 1, "\(locking)")
        #expect(
            locking.allSatisfy {
                $0.contains("pg_advisory_xact_lock") && $0.contains("create table") && $0.contains("create index")
            })
        #expect(
            (try? await server.sql("select 1 / (not exists (select from pg_locks where locktype = 'advisory'))::integer"))
                != nil)
    }
}

import Foundation
import GRDB
import Plimsoll
import PlimsollGRDB
import PlimsollLifecycle
import PlimsollTesting
import Synchronization
import TestServers
import Testing

@testable import PlimsollPostgreSQL

/// Replicas that hand work over through a real server, and a server that ends, hangs or gives false answers.
@Suite(.serialized, .timeLimit(.minutes(5))) struct HandoffServerTests {
    /// A record of the works: the running, the steps and the finished ones.
    private final class Ledger: Sendable {
        private let state = Mutex((running: [String: Int](), most: 0, done: [String: Int](), steps: 0))
        func enter(_ work: String) {
            state.withLock { state in
                state.running[work, default: 0] += 1
                state.most = max(state.most, state.running[work] ?? 0)
            }
        }
        func leave(_ work: String) { state.withLock { $0.running[work, default: 0] -= 1 } }
        func step() { state.withLock { $0.steps += 1 } }
        func finish(_ work: String) { state.withLock { $0.done[work, default: 0] += 1 } }
        var most: Int { state.withLock { $0.most } }
        var done: [String: Int] { state.withLock { $0.done } }
        var steps: Int { state.withLock { $0.steps } }
    }

    private static let steps: UInt8 = 40

    /// Performs forty steps, each recorded. The name of the work and the number of steps done are the checkpoint. With
    /// `waitsForStop` the work waits in the middle for the request to stop.
    private static func work(_ checkpoint: HandoffCheckpoint, _ name: String, _ ledger: Ledger, waitsForStop: Bool = false) async throws {
        ledger.enter(name)
        defer { ledger.leave(name) }
        var done = checkpoint.start?.first ?? 0
        while done < steps {
            if waitsForStop, done == steps / 2 { try await untilCancelled() }
            try Task.checkCancellation()
            poll(nil, 0, 1)
            await Task.yield()
            done += 1
            ledger.step()
            checkpoint.save([done] + Array(name.utf8))
        }
        ledger.finish(name)
    }

    private static func resume(_ manager: ResourceManager, _ store: any TaskHandoff, _ owner: String, _ ledger: Ledger, _ events: Events) async {
        var policy = TaskHandoffPolicy()
        // No replica dies here. On a busy machine the server may take long to restart, and a lease must not end
        // meanwhile.
        (policy.lease, policy.poll, policy.longestPause, policy.retry) = (.seconds(600), .milliseconds(5), .milliseconds(50), .milliseconds(1))
        await manager.resumeHandedOff(from: store, names: ["export"], as: owner, policy: policy, onEvent: { events.add($0, $2) }) { _, checkpoint in
            let name = String(decoding: (checkpoint.start ?? []).dropFirst(), as: UTF8.self)
            try await work(checkpoint, name, ledger)
        }
    }

    private final class Events: Sendable {
        private let all = Mutex<[(event: String, problem: String?)]>([])
        func add(_ event: String, _ problem: String?) { all.withLock { $0.append((event, problem)) } }
        func count(_ event: String) -> Int { all.withLock { $0.count { $0.event == event } } }
        var problems: [String] { all.withLock { $0.compactMap { $0.event == "store failed" ? $0.problem : nil } } }
    }

    private static func manager() -> ResourceManager { ResourceManager(source: ScriptedPressureSource()) }

    /// Begins the works on one replica, and asks the replica to stop in the middle. Returns true for each work that is
    /// handed off. The last work cannot finish before the request to stop, even if the request comes late.
    private func begin(_ names: [String], on manager: ResourceManager, _ store: any TaskHandoff, _ ledger: Ledger) async throws -> [Bool] {
        try await withThrowingTaskGroup(of: Bool.self) { group in
            for name in names {
                group.addTask {
                    try await manager.withBackgroundTask("export", handoff: store, from: [0] + Array(name.utf8), as: "first") { _, checkpoint in
                        try await Self.work(checkpoint, name, ledger, waitsForStop: name == names.last)
                    } == nil
                }
            }
            await until { ledger.steps >= names.count }
            manager.expireBackgroundTasks(.pressure, within: .seconds(60))
            return try await group.reduce(into: []) { $0.append($1) }
        }
    }

    @Test(.enabled(if: PostgreSQLServer.isInstalled, Comment(rawValue: PostgreSQLServer.reason)))
    func `C73 other replicas finish work that one replica had to stop, across a kill of the server`() async throws {
        let server = try await PostgreSQLServer(), ledger = Ledger(), events = Events()
        let names = (0..<6).map { "work \($0)" }
        let first = Self.manager(), firstStore = server.store()
        let outcomes = try await begin(names, on: first, firstStore, ledger)
        let handed = outcomes.count { $0 }
        #expect(handed >= 1 && handed + ledger.done.count == 6)

        try await withThrowingTaskGroup(of: Void.self) { group in
            for owner in ["second", "third"] {
                group.addTask { await Self.resume(Self.manager(), server.store(), owner, ledger, events) }
            }
            await until { events.count("taken") >= 1 }
            await server.kill()
            await until { !events.problems.isEmpty }
            try await server.restart()
            await until { ledger.done.count == 6 }
            // The last completion has also reached the store, so that no replica repeats the work.
            await untilAnswer { (try? await firstStore.census()).map { $0 == (0, 0, 0) } == true }
            group.cancelAll()
            try await group.waitForAll()
        }
        #expect(ledger.done == Dictionary(uniqueKeysWithValues: names.map { ($0, 1) }) && ledger.most == 1, "each once, and by one at a time")
        #expect(events.count("lost") == 0)
    }

    @Test func `C73 the next process finishes work that one process had to stop, through a file`() async throws {
        let directory = try TemporaryDirectory("handoff"), ledger = Ledger(), events = Events()
        let names = (0..<4).map { "work \($0)" }
        let outcomes = try await begin(names, on: Self.manager(), SQLiteTaskHandoff(path: directory.path("tasks")), ledger)
        #expect(outcomes.contains(true))
        let store = try SQLiteTaskHandoff(path: directory.path("tasks"))
        let run = Task { await Self.resume(Self.manager(), store, "next", ledger, events) }
        try await untilAnswer {
            guard ledger.done.count == 4 else { return false }
            return try await store.census() == (0, 0, 0)
        }
        run.cancel()
        await run.value
        #expect(ledger.done.values.allSatisfy { $0 == 1 } && ledger.most == 1 && events.problems.isEmpty)
        #expect(ledger.steps == 4 * Int(Self.steps), "no step twice: each process continues at the other's checkpoint")
    }

    @Test(.enabled(if: PostgreSQLServer.isInstalled, Comment(rawValue: PostgreSQLServer.reason)))
    func `a server that is down when work must stop makes the handover fall back to the other way`() async throws {
        let server = try await PostgreSQLServer(), manager = Self.manager(), ledger = Ledger(), kept = MemoryStateStore()
        #expect(manager.persistHandovers(in: kept) == nil)
        await server.kill()
        let problem = await #expect(throws: TaskHandoffError.self) { try await begin(["lonely"], on: manager, server.store(), ledger) }
        #expect(problem?.isUnreachable == true && problem?.description.contains("offer task \"export\"") == true, "\(String(describing: problem))")
        let work = try #require(manager.claimHandovers().first)
        #expect(work.name == "export" && work.bytes.dropFirst() == Array("lonely".utf8)[...])
    }

    @Test(.enabled(if: PostgreSQLServer.isInstalled, Comment(rawValue: PostgreSQLServer.reason)))
    func `a server that hangs costs one time limit, then nothing, and is used again after recovery`() async throws {
        let server = try await PostgreSQLServer()
        var settings = PostgreSQLTimes.hasty
        // Also the longest time that a request waits for the store's thread, which a busy machine may start late.
        settings.statementTimeout = PostgreSQLTimes.patient.statementTimeout
        (settings.shortestPause, settings.longestPause) = (.seconds(3600), .seconds(3600))
        let store = server.store(TaskHandoffPolicy(), settings), other = server.store(TaskHandoffPolicy(), .hasty)
        await untilAnswer { (try? await other.census()) != nil }
        _ = try? await store.census()
        server.freeze(true)
        // The processes that serve connections run on. New connections are not accepted.
        let fresh = server.store(TaskHandoffPolicy(), settings)
        await #expect(throws: TaskHandoffError.self) { try await fresh.census() }
        let second = await #expect(throws: TaskHandoffError.self) { try await fresh.census() }
        #expect(second?.isUnreachable == true && second?.description.contains("is not tried") == true)
        #expect(fresh.statistics.skipped == 1 && fresh.statistics.unreachable == 1 && fresh.statistics.lastProblem != nil)
        server.freeze(false)
        await untilAnswer { (try? await other.census()) != nil }
    }

    @Test(.enabled(if: PostgreSQLServer.isInstalled, Comment(rawValue: PostgreSQLServer.reason)))
    func `a silent first host costs a time limit, and the next attempt begins with the next host`() async throws {
        let server = try await PostgreSQLServer(), silent = PuppetServer(answering: nil)
        defer { silent.stop() }
        var times = PostgreSQLTimes.patient
        times.connectTimeout = .milliseconds(500)
        let hosts = "host=127.0.0.1,127.0.0.1 port=\(silent.port),\(server.port)"
        let store = PostgreSQLTaskHandoff(
            "\(hosts) user=postgres dbname=postgres sslmode=disable application_name='it\\'s \\\\ a test'",
            settings: times)
        let first = await #expect(throws: TaskHandoffError.self) { try await store.census() }
        #expect(first?.description.contains("no connection within") == true, "\(String(describing: first))")
        // On a busy machine the second host may be too slow as well, and has another turn later.
        await untilAnswer(limit: .seconds(60)) { (try? await store.census()) != nil }
        #expect(store.statistics.connections == 1)
    }

    @Test(.enabled(if: PostgreSQLServer.isInstalled, Comment(rawValue: PostgreSQLServer.reason)))
    func `a time limit may be longer than the server's own setting can be`() async throws {
        let server = try await PostgreSQLServer(), year = Duration.seconds(365 * 86400)
        let store = server.store(TaskHandoffPolicy(), PostgreSQLTimes(connectTimeout: year, statementTimeout: year))
        #expect(try await store.census() == (0, 0, 0))
    }

    @Test func `a refused thread costs the request that waits, and the next request starts the thread`() async throws {
        let starts = Mutex(0)
        let worker = PostgreSQLWorker(
            name: "nowhere", conninfo: "hostaddr=127.0.0.1 port=\(Loopback.freePort()) user=x dbname=x sslmode=disable",
            settings: PostgreSQLSettings(
                connectTimeout: .seconds(60), statementTimeout: .seconds(60), shortestPause: .milliseconds(1),
                longestPause: .milliseconds(1), table: "tasks"),
            prepare: "",
            startThread: { _, body in
                let isFirst = starts.withLock { starts in
                    starts += 1
                    return starts == 1
                }
                if !isFirst { Foundation.Thread.detachNewThread(body) }
                return !isFirst
            })
        defer { worker.stop() }
        func ask() async -> String {
            let error = await #expect(throws: TaskHandoffError.self) {
                _ = try await worker.rows("ask", "select 1", [], columns: 1, most: 1)
            }
            return error?.description ?? ""
        }
        #expect(await ask().contains("cannot start a thread"))
        // Only the thread can find out that no server listens there.
        #expect(await !ask().contains("cannot start a thread"))
        #expect(worker.statistics.unreachable == 1 && starts.withLock { $0 } == 2)
    }

    @Test(arguments: [nil, "HTTP/1.1 400 Bad Request\r\n\r\n", "R\0\0\0\u{8}\0\0\0\0", "E\0\0\0\u{b}SFATAL\0", "T\u{7f}\u{7f}\u{7f}\u{7f}"])
    func `a server that is silent or lies gives an error with the reason`(answer: String?) async throws {
        let puppet = PuppetServer(answering: answer.map { Array($0.utf8) })
        defer { puppet.stop() }
        let store = PostgreSQLTaskHandoff("hostaddr=127.0.0.1 port=\(puppet.port) user=x dbname=x sslmode=disable", settings: .hasty)
        let error = await #expect(throws: TaskHandoffError.self) { try await store.take(["a"], by: "r", for: .seconds(1)) }
        #expect(
            error?.isUnreachable == true && error?.description.hasPrefix("cannot take a task in PostgreSQL") == true, "\(String(describing: error))")
        #expect(store.statistics.unreachable == 1 && store.statistics.answered == 0)
    }

    @Test(.enabled(if: PostgreSQLServer.isInstalled, Comment(rawValue: PostgreSQLServer.reason)))
    func `a foreign change to a row sets the row aside without a run`() async throws {
        let server = try await PostgreSQLServer(), store = server.store()
        _ = try await store.offer(HandedOffTask(id: "bent", name: "a", checkpoint: [1, 2, 3], reason: .pressure), heldBy: "x", for: .zero)
        let log = FileManager.default.temporaryDirectory.appendingPathComponent("psql-\(UInt32.random(in: 0 ... .max))")
        defer { try? FileManager.default.removeItem(at: log) }
        let psql = try #require(ServerProcess.find("psql"))
        #expect(try await ServerProcess.run([psql, server.conninfo, "-c", "update plimsoll_handoff set checkpoint = 'xyz'"], log: log) == 0)
        let error = await #expect(throws: TaskHandoffError.self) { try await store.take(["a"], by: "r", for: .seconds(60)) }
        #expect(error?.isMalformed == true && error?.description.contains("bent") == true)
        #expect(try await store.take(["a"], by: "r", for: .seconds(60)) == nil)
        #expect(try await store.setAside(most: 5).first?.problem == "the checkpoint is damaged")
    }

    @Test func `a task file is readable by the owner alone, and an existing file is closed to others`() async throws {
        let directory = try TemporaryDirectory("handoff")
        func mode(_ name: String) -> mode_t? {
            var status = stat()
            return stat(directory.path(name), &status) == 0 ? status.st_mode & 0o7777 : nil
        }
        let store = try SQLiteTaskHandoff(path: directory.path("tasks"))
        _ = try await store.offer(HandedOffTask(name: "a", checkpoint: [1], reason: .pressure), heldBy: "x", for: .zero)
        for name in ["tasks", "tasks-wal", "tasks-shm"] { #expect(mode(name) == 0o600, "\(name): \(String(mode(name) ?? 0, radix: 8))") }
        // Another store of this process does not end the locks of the first.
        let second = try SQLiteTaskHandoff(path: directory.path("tasks"))
        #expect(try await second.take(["a"], by: "y", for: .seconds(60))?.checkpoint == [1])

        // Files as an earlier release, or an administrator, left them.
        for (name, before, after) in [("old", 0o644, 0o640), ("shared", 0o660, 0o660), ("open", 0o666, 0o660)] as [(String, mode_t, mode_t)] {
            #expect(try await SQLiteTaskHandoff(path: directory.path(name)).census() == (0, 0, 0))
            #expect(chmod(directory.path(name), before) == 0)
            #expect(try await SQLiteTaskHandoff(path: directory.path(name)).census() == (0, 0, 0))
            #expect(mode(name) == after, "\(name): \(String(mode(name) ?? 0, radix: 8))")
        }
        // The files beside the database hold the same data.
        for name in ["tasks-wal", "tasks-shm"] { #expect(chmod(directory.path(name), 0o644) == 0) }
        #expect(try await SQLiteTaskHandoff(path: directory.path("tasks")).census().held == 1)
        for name in ["tasks-wal", "tasks-shm"] { #expect(mode(name) == 0o640, "\(name): \(String(mode(name) ?? 0, radix: 8))") }
        #expect(throws: (any Error).self) { try SQLiteTaskHandoff(path: directory.path("none/tasks")) }
        // A database in memory has no log, and is refused as before; no file of that name is made.
        #expect(throws: (any Error).self) { try SQLiteTaskHandoff(path: ":memory:") }
        #expect(access(":memory:", F_OK) != 0)
    }

    @Test(arguments: [
        "checksum = 'x'", "checkpoint = 5", "reason = x'ff'", "attempts = -5", "fence = 9223372036854775807",
        "id = x'ff'",
    ])
    func `a value of a wrong type in a file's row sets the row aside`(change: String) async throws {
        let directory = try TemporaryDirectory("handoff"), store = try SQLiteTaskHandoff(path: directory.path("tasks"))
        let work = HandedOffTask(id: "bent", name: "a", checkpoint: [1, 2, 3], reason: .pressure)
        _ = try await store.offer(work, heldBy: "x", for: .zero)
        let other = try DatabaseQueue(path: directory.path("tasks"))
        try await other.write { try $0.execute(sql: "UPDATE plimsoll_handoff SET " + change) }
        let error = await #expect(throws: TaskHandoffError.self) {
            try await store.take(["a"], by: "r", for: .seconds(60))
        }
        #expect(error?.isMalformed == true, "\(String(describing: error))")
        #expect(try await store.take(["a"], by: "r", for: .seconds(60)) == nil)
        #expect(try await store.setAside(most: 5).map(\.problem) == ["the checkpoint is damaged"])
        // The list too reads values of any type.
        try await other.write { try $0.execute(sql: "UPDATE plimsoll_handoff SET attempts = 'x', problem = x'ff'") }
        #expect(try await store.setAside(most: 5).map(\.attempts) == [0])
    }

    @Test(arguments: [Duration.seconds(-1), .seconds(40 * 86400), .seconds(Int64.max)])
    func `a file opens with any busy timeout`(timeout: Duration) async throws {
        let directory = try TemporaryDirectory("handoff")
        let store = try SQLiteTaskHandoff(path: directory.path("tasks"), busyTimeout: timeout)
        #expect(try await store.census() == (0, 0, 0))
    }

    @Test func `a foreign change to a file's row sets the row aside, and a file that is no database is refused`() async throws {
        let directory = try TemporaryDirectory("handoff"), store = try SQLiteTaskHandoff(path: directory.path("tasks"))
        _ = try await store.offer(HandedOffTask(id: "bent", name: "a", checkpoint: [1, 2, 3], reason: .pressure), heldBy: "x", for: .zero)
        var configuration = Configuration()
        configuration.allowsUnsafeTransactions = true
        let other = try DatabaseQueue(path: directory.path("tasks"), configuration: configuration)
        try await other.write { try $0.execute(sql: "UPDATE plimsoll_handoff SET checkpoint = x'414243'") }
        let error = await #expect(throws: TaskHandoffError.self) { try await store.take(["a"], by: "r", for: .seconds(60)) }
        #expect(error?.isMalformed == true && error?.description.contains("bent") == true)
        #expect(try await store.setAside(most: 5).first?.problem == "the checkpoint is damaged")
        // Held by another process for longer than the busy timeout.
        let hasty = try SQLiteTaskHandoff(path: directory.path("tasks"), busyTimeout: .milliseconds(20))
        try await other.writeWithoutTransaction { try $0.execute(sql: "BEGIN IMMEDIATE") }
        let busy = await #expect(throws: TaskHandoffError.self) { try await hasty.retry("bent") }
        #expect(busy?.isUnreachable == true && busy?.description.contains("busy timeout") == true, "\(String(describing: busy))")
        try await other.writeWithoutTransaction { try $0.execute(sql: "ROLLBACK") }
        #expect(try await hasty.retry("bent"))
        try Data(repeating: 65, count: 8192).write(to: directory.url.appendingPathComponent("none"))
        #expect(throws: (any Error).self) { try SQLiteTaskHandoff(path: directory.path("none")) }
    }
}

import Foundation
import Plimsoll
import PlimsollLifecycle
import PlimsollPostgreSQL
import TestServers
import Testing

/// A PostgreSQL server with a cluster of its own, on a port of loopback.
final class PostgreSQLServer: Sendable {
    static let isInstalled =
        ServerProcess.find("postgres") != nil && (geteuid() != 0 || ServerProcess.find("setpriv") != nil && getpwnam("postgres") != nil)
    static let reason = "PostgreSQL's server is not installed, or root has no user postgres to run it as"

    let port: UInt16
    private let directory: TemporaryDirectory
    private let process: ServerProcess
    private var log: URL { directory.url.appendingPathComponent("log") }

    init() async throws {
        directory = try TemporaryDirectory("pg")
        let data = directory.path("data")
        if geteuid() == 0 {
            // PostgreSQL refuses to run as root.
            let user = getpwnam("postgres").pointee
            chown(directory.url.path, user.pw_uid, user.pw_gid)
        }
        let log = directory.url.appendingPathComponent("log")
        let made = try await ServerProcess.run(
            Self.asUser([ServerProcess.find("initdb")!, "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]), log: log)
        if made != 0 { throw TestServerProblem("initdb ended with \(made): \((try? String(contentsOf: log, encoding: .utf8)) ?? "")") }
        // Another process may take a free port before the server does. The server then ends, and is started on another
        // port.
        var attempt = 0
        while true {
            let port = Loopback.freePort()
            let process = try ServerProcess(
                Self.asUser([
                    ServerProcess.find("postgres")!, "-D", data, "-h", "127.0.0.1", "-p", "\(port)", "-k", "", "-c", "fsync=off", "-c",
                    "max_connections=20", "-c", "shared_buffers=4MB",
                ]), log: log)
            let store = PostgreSQLTaskHandoff(Self.conninfo(port), settings: .patient)
            var isUp = false
            await untilAnswer("a server that answers, or ends") {
                isUp = (try? await store.census()) != nil
                return isUp || !process.isRunning
            }
            attempt += 1
            if isUp || attempt == 5 {
                (self.port, self.process) = (port, process)
                if !isUp { throw TestServerProblem("postgres did not start: \((try? String(contentsOf: log, encoding: .utf8)) ?? "")") }
                return
            }
        }
    }

    private static func asUser(_ command: [String]) -> [String] {
        geteuid() == 0 ? [ServerProcess.find("setpriv")!, "--reuid", "postgres", "--regid", "postgres", "--clear-groups"] + command : command
    }

    /// The connection parameters for a client.
    var conninfo: String { Self.conninfo(port) }

    private static func conninfo(_ port: UInt16) -> String {
        "hostaddr=127.0.0.1 port=\(port) user=postgres dbname=postgres application_name=plimsoll-test"
    }

    func store(_ policy: TaskHandoffPolicy = TaskHandoffPolicy(), _ settings: PostgreSQLTimes = .patient) -> PostgreSQLTaskHandoff {
        PostgreSQLTaskHandoff(conninfo, policy: policy, settings: settings)
    }

    /// Runs `statement` with psql.
    func sql(_ statement: String) async throws {
        let output = directory.url.appendingPathComponent("psql")
        guard let psql = ServerProcess.find("psql") else { throw TestServerProblem("psql is not installed") }
        let status = try await ServerProcess.run([psql, conninfo, "-v", "ON_ERROR_STOP=1", "-c", statement], log: output)
        if status != 0 { throw TestServerProblem("psql ended with \(status): \((try? String(contentsOf: output, encoding: .utf8)) ?? "")") }
    }

    /// Returns the server's log.
    func logged() throws -> String { try String(contentsOf: log, encoding: .utf8) }

    func kill() async { await process.kill() }
    func freeze(_ isFrozen: Bool) { process.freeze(isFrozen) }

    func restart() async throws {
        let store = PostgreSQLTaskHandoff(conninfo, settings: .patient)
        var isUp = false
        // The children of the killed server take a moment to end. Until then the next server refuses to start.
        while !isUp {
            try process.start(log: log)
            await untilAnswer {
                isUp = (try? await store.census()) != nil
                return isUp || !process.isRunning
            }
        }
    }
}

struct TestServerProblem: Error, CustomStringConvertible {
    var description: String
    init(_ description: String) { self.description = description }
}

/// Time limits of a store.
struct PostgreSQLTimes {
    var connectTimeout = Duration.seconds(60)
    var statementTimeout = Duration.seconds(60)
    var shortestPause = Duration.milliseconds(1)
    var longestPause = Duration.milliseconds(20)

    /// Times that no busy machine exceeds, and short pauses.
    static let patient = PostgreSQLTimes()
    /// Times after which a server that never answers is detected.
    static let hasty = PostgreSQLTimes(connectTimeout: .milliseconds(100), statementTimeout: .milliseconds(100))
}

extension PostgreSQLTaskHandoff {
    convenience init(_ conninfo: String, policy: TaskHandoffPolicy = TaskHandoffPolicy(), settings: PostgreSQLTimes) {
        self.init(
            conninfo, policy: policy, connectTimeout: settings.connectTimeout,
            statementTimeout: settings.statementTimeout, shortestPause: settings.shortestPause,
            longestPause: settings.longestPause)
    }
}

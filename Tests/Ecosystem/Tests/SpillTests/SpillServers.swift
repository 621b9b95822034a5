import Foundation
import Plimsoll
import PlimsollSpill
import PlimsollTesting
import TestServers
import Testing

/// Either of the two servers, started for a test.
enum Kind: String, CaseIterable, CustomStringConvertible, Sendable {
    case memcached, redis

    var description: String { rawValue }
    var program: String? { ServerProcess.find(self == .memcached ? "memcached" : "redis-server") }

    func store(port: UInt16) -> SpillStore {
        switch self {
        case .memcached: SpillStore.memcached(host: "127.0.0.1", port: port)
        case .redis: SpillStore.redis(host: "127.0.0.1", port: port)
        }
    }
}

/// A real server on a port of loopback.
struct SpillServer {
    let kind: Kind
    let port: UInt16
    let directory: TemporaryDirectory
    let process: ServerProcess

    var store: SpillStore { kind.store(port: port) }
    var log: URL { directory.url.appendingPathComponent("log") }

    /// Starts the server. Cancels the test, which is then reported as skipped, where the program is not installed.
    init(_ kind: Kind) async throws {
        guard let program = kind.program else { try Test.cancel("the server of \(kind) is not installed") }
        (self.kind, port, directory) = (kind, Loopback.freePort(), try TemporaryDirectory("spill"))
        let command =
            switch kind {
            case .memcached: [program, "-u", "nobody", "-l", "127.0.0.1", "-p", "\(port)", "-U", "0", "-m", "32"]
            case .redis:
                [
                    program, "--bind", "127.0.0.1", "--port", "\(port)", "--save", "", "--appendonly", "no", "--dir", directory.url.path,
                    "--daemonize", "no",
                ]
            }
        process = try ServerProcess(command, log: directory.url.appendingPathComponent("log"))
        await ready()
    }

    func ready() async {
        await until {
            do {
                _ = try store.connect(within: .seconds(1)).get("plimsoll:ready", most: 10, within: .seconds(1))
                return true
            } catch {
                return false
            }
        }
    }

    func restart() async throws {
        try process.start(log: log)
        await ready()
    }
}

/// A cache of 100 short texts over a server, with a manager that need not run.
final class SpilledTexts: Sendable {
    let cache: PurgeableCache<String, String>
    let spilled: SpilledCache<String, String>
    let manager: ResourceManager
    let source = ScriptedPressureSource()

    init(
        _ store: SpillStore, limits: SpillLimits = .patient, generation: UInt64 = .random(in: .min ... .max),
        secret: [UInt8]? = nil, name: String = "texts"
    ) {
        manager = ResourceManager(source: source)
        cache = PurgeableCache(name, limit: .bytes(100), shardCount: 1, cost: { _, _ in 1 })
        spilled = SpilledCache(cache, to: store, manager: manager, limits: limits, generation: generation, secret: secret)
    }

    /// Returns the text under `key`. If neither cache nor store has the text, the load returns `loaded`.
    func text(_ key: String, loaded: String) async throws -> String { try await spilled.value(forKey: key) { loaded } }

    /// Inserts a text of a kilobyte under each key and purges them all, so that they go to the store.
    func spill(_ keys: some Sequence<Int>, _ text: String = "text") {
        for key in keys {
            cache.insert("\(text) \(key) " + String(repeating: "x", count: 1000), forKey: "key \(key)")
            _ = cache.release(.max)
        }
    }

    /// Waits until `count` values were written or have failed. A value in the middle of a write is no longer queued and
    /// not yet stored.
    func written(_ count: Int) async {
        await until { spilled.statistics.queuedCount == 0 && spilled.statistics.stored + spilled.statistics.failures >= count }
    }
}

extension SpillLimits {
    /// Times that no busy machine exceeds, so that the tests do not depend on the machine.
    static var patient: SpillLimits {
        var limits = SpillLimits()
        (limits.readTimeout, limits.writeTimeout) = (.seconds(60), .seconds(60))
        (limits.shortestPause, limits.longestPause) = (.milliseconds(1), .milliseconds(20))
        return limits
    }

    /// Times after which a server that never answers is detected.
    static var hasty: SpillLimits {
        var limits = patient
        (limits.readTimeout, limits.writeTimeout) = (.milliseconds(30), .milliseconds(30))
        return limits
    }
}

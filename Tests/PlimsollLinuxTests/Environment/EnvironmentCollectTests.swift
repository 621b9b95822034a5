import Foundation
import Plimsoll
import Synchronization
import TestSupport
import Testing

@testable import PlimsollLifecycle
@testable import PlimsollLinux

@Suite(.timeLimit(.minutes(5))) struct EnvironmentCollectTests {
    private struct Log {
        var lines: [String] = []
        var asking: pid_t = 0
    }

    private final class Shared: Sendable {
        private let log = Mutex(Log())
        func withLock<Result: Sendable>(_ body: (inout sending Log) -> sending Result) -> Result { log.withLock(body) }
    }

    @Test func `C59 a collect after a freeze waits for events that another thread has just taken, so that no event is missing`()
        async throws
    {
        let directory = FileManager.default.temporaryDirectory.path + "/plimsoll-collect-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let kind = EnvironmentChange.Kind.file(directory + "/conf")
        let environment = LinuxEnvironment(HostKernel(), zone: nil)
        let log = Shared(), entered = Parker(), released = Parker()
        environment.start { _, _ in
            // The listening thread has taken the events, and is delayed before the report of all events.
            guard log.withLock({ $0.lines.isEmpty }) else { return }
            log.withLock { $0.lines.append("taken") }
            entered.unpark()
            released.park()
            log.withLock { $0.lines.append("notified") }
        }
        #expect(environment.watch(kind))
        defer { environment.unwatch(kind) }
        try Data("1".utf8).write(to: URL(fileURLWithPath: directory + "/conf"))
        entered.park()
        let collecting = Thread {
            log.withLock { $0.asking = threadNumber }
            environment.collect()
            log.withLock { $0.lines.append("collected") }
        }
        collecting.start()
        // A thread that does not wait gets past this point.
        await until("a thread that waits") {
            let (asking, hasCollected) = log.withLock { ($0.asking, $0.lines.contains("collected")) }
            return hasCollected || asking != 0 && isBlocked(asking)
        }
        released.unpark()
        await until { log.withLock { $0.lines.count } >= 3 }
        #expect(log.withLock { $0.lines } == ["taken", "notified", "collected"])
    }
}

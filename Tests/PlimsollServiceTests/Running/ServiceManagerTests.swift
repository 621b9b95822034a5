import Foundation
import Plimsoll
import PlimsollLifecycle
import PlimsollSupervisor
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollLinux
@testable import PlimsollService

/// Messages from the process to its service manager. The other end is the supervisor's socket for notifications.
@Suite(.timeLimit(.minutes(5))) final class ServiceManagerTests {
    private let directory = NSTemporaryDirectory() + "plimsoll-service-\(UUID().uuidString.prefix(8))"
    private let socket: NotifySocket

    init() throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        socket = try NotifySocket(directory: directory)
    }

    deinit { try? FileManager.default.removeItem(atPath: directory) }

    /// Returns the messages since the last call.
    private func said() -> [NotifyMessage] {
        var messages: [NotifyMessage] = []
        while let notice = socket.receive() { messages.append(notice.message) }
        return messages
    }

    private func serviceManager(_ more: [String: String] = [:]) throws -> ServiceManager {
        let environment = more.merging(["NOTIFY_SOCKET": socket.path]) { $1 }
        return try #require(try ServiceManager { environment[$0] })
    }

    @Test func `an environment without a service manager sends no message, and an impossible address is refused`() throws {
        #expect(try ServiceManager { _ in nil } == nil && ServiceManager { _ in "" } == nil)
        #expect(throws: ServiceManagerError.self) { try ServiceManager { $0 == "NOTIFY_SOCKET" ? "relative" : nil } }
        let long = "/" + String(repeating: "x", count: 200)
        do {
            _ = try ServiceManager { $0 == "NOTIFY_SOCKET" ? long : nil }
            Issue.record("an address of 201 bytes was taken")
        } catch { #expect("\(error)".contains("at most 107 bytes")) }
        let nobody = try #require(try ServiceManager { $0 == "NOTIFY_SOCKET" ? "@nobody-listens-\(getpid())" : nil })
        #expect(throws: ServiceManagerError.self) { try nobody.notify("READY=1") }
        let nowhere = try #require(try ServiceManager { $0 == "NOTIFY_SOCKET" ? "/nowhere/notify" : nil })
        do { try nowhere.notify("READY=1") } catch { #expect("\(error)".contains("/nowhere/notify: No such file")) }
    }

    @Test func `the watchdog interval follows the named process and the given time`() throws {
        #expect(try serviceManager(["WATCHDOG_USEC": "3000000"]).watchdogInterval == .seconds(3))
        #expect(try serviceManager(["WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "\(getpid())"]).watchdogInterval == .seconds(3))
        #expect(try serviceManager(["WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"]).watchdogInterval == nil)
        #expect(try serviceManager(["WATCHDOG_USEC": "0"]).watchdogInterval == nil && serviceManager(["WATCHDOG_USEC": "x"]).watchdogInterval == nil)
    }

    /// A source whose first reading comes when the test permits.
    private struct LateSource: PressureSource {
        let script = ScriptedPressureSource()
        let isAsked = Parker(), mayRead = Parker()

        var capabilities: Capabilities { script.capabilities }
        var rings: Bool { script.rings }
        func wait(atMost limit: Duration) { script.wait(atMost: limit) }
        func wake() { script.wake() }
        func footprint() -> Footprint { script.footprint() }

        func read(at time: Duration) throws(PressureSourceError) -> PressureReading {
            isAsked.unpark()
            mayRead.park()
            mayRead.unpark()
            return try script.read(at: time)
        }
    }

    @Test func `readiness is reported together with the first reading, however late`() async throws {
        let source = LateSource(), manager = ResourceManager(source: source)
        source.script.push(usage: .mebibytes(100), limit: .gibibytes(1))
        let link = ServiceManagerLink(manager, try serviceManager()) { Issue.record("\($0)") }
        link.begin()
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            await until { manager.lifecycle.readiness.isReady }
            #expect(source.isAsked.park(atMost: .seconds(60)))
            #expect(said().isEmpty)
            source.mayRead.unpark()
            var messages: [NotifyMessage] = []
            await until {
                messages += said()
                return !messages.isEmpty
            }
            #expect(messages[0].isReady && messages[0].status == "active; memory normal, 100 MiB of 1 GiB", "\(messages[0])")
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    @Test func `the service manager receives readiness, life signs, status, stopping and the time that tasks need`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let link = ServiceManagerLink(manager, try serviceManager(["WATCHDOG_USEC": "1000000"])) { Issue.record("\($0)") }
        #expect(link.interval == .milliseconds(500))
        link.begin()
        var messages: [NotifyMessage] = []
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            // Waits for the first reading as well, which is sent as news.
            await until {
                messages += said()
                return !messages.isEmpty && manager.memoryStatus != nil
            }
            #expect(messages[0].isReady && messages[0].status?.hasPrefix("active") == true)
            let export = manager.beginBackgroundTask("export\n\u{1B}") { task, _ in task.end() }
            export.progress(completed: 2, total: 5)
            link.poll()
            let now = said()
            #expect(now.first?.isAlive == true && now.last?.status?.contains("1 background task: export\u{FFFD}\u{FFFD} 40 %") == true)
            link.poll()
            // Nothing new except a life sign.
            #expect(said().map(\.status) == [nil])
            export.progress(completed: .max, total: 3)
            link.poll()
            #expect(said().last?.status?.contains(" 100 %") == true)
            manager.beginShutdown(within: .seconds(600))
            link.stopping(within: .seconds(600))
            // While other services drain, before the tasks' turn, the service manager must not lose patience.
            let first = said()
            #expect(first.count == 1 && first[0].isStopping && first[0].status?.hasPrefix("shutting down") == true)
            #expect(first[0].timeoutExtension == .seconds(601))
            group.cancelAll()
            try await group.waitForAll()
            _ = export
        }
        #expect(said().contains { ($0.timeoutExtension ?? .zero) > .seconds(1) })
    }

    @Test func `the last status sent by any thread is the newest one`() throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        // A message that found the queue full is sent with the next poll.
        let link = ServiceManagerLink(manager, try serviceManager()) { _ in }
        for round in 0..<300 {
            let task = manager.beginBackgroundTask("export \(round)") { task, _ in task.end() }
            let crew = (0..<3).map { _ in Thread { link.poll() } }
            for thread in crew { thread.start() }
            // One of the threads may be between polling and sending.
            task.progress(completed: 1, total: 2)
            link.poll()
            blockUntil { crew.allSatisfy(\.isFinished) }
            link.poll()
            #expect(said().compactMap(\.status).last?.hasSuffix("export \(round) 50 %") == true)
            task.end()
        }
    }

    @Test func `messages that found the queue full are sent again, and the life sign soon`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let link = ServiceManagerLink(manager, try serviceManager(["WATCHDOG_USEC": "1000000"])) { Issue.record("\($0)") }
        let other = try serviceManager()
        func fill() { while (try? other.notify("X_OTHER=1")) != nil {} }
        fill()
        #expect(throws: ServiceManagerError.self) { try other.notify("READY=1") }
        link.stopping(within: .seconds(5))
        #expect(said().isEmpty)
        link.poll()
        let messages = said()
        #expect(messages.contains { $0.isStopping && $0.status != nil } && messages.contains { $0.isAlive })
        // While the queue stays full, the link tries again after a pause.
        fill()
        let complaints = Mutex(0)
        let patient = ServiceManagerLink(manager, try serviceManager(["WATCHDOG_USEC": "1000000"])) { _ in complaints.withLock { $0 += 1 } }
        let took = ContinuousClock().measure { patient.poll() }
        #expect(took >= .milliseconds(100) && complaints.withLock { $0 } == 1)
        // A reader empties the queue a moment after the link found the queue full.
        let poller = Thread { link.poll() }
        poller.start()
        var received: [NotifyMessage] = []
        await until("the life sign") {
            received += said()
            return poller.isFinished
        }
        received += said()
        #expect(received.contains { $0.isAlive })
    }

    @Test func `readiness that no service manager received is sent again once one is back`() async throws {
        let later = directory + "/later", address = later + "/notify"
        let manager = ResourceManager(source: ScriptedPressureSource()), failures = Mutex(0)
        let absent = try #require(try ServiceManager { $0 == "NOTIFY_SOCKET" ? address : nil })
        let link = ServiceManagerLink(manager, absent) { _ in failures.withLock { $0 += 1 } }
        link.begin()
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            await until("the readiness is lost") { failures.withLock { $0 } > 0 }
            link.poll()
            try FileManager.default.createDirectory(atPath: later, withIntermediateDirectories: true)
            let back = try NotifySocket(directory: later)
            #expect(back.path == address)
            link.poll()
            #expect(back.receive()?.message.isReady == true)
            // Readiness is told once.
            link.poll()
            #expect(back.receive()?.message.isReady != true)
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    @Test func `a shutdown asks for no more time without a live background task`() throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let link = ServiceManagerLink(manager, try serviceManager()) { Issue.record("\($0)") }
        link.stopping(within: .seconds(5))
        let messages = said()
        #expect(messages.map(\.isStopping) == [true] && messages[0].timeoutExtension == nil)
    }

    @Test func `a lost service manager is reported once, and the service goes on`() async throws {
        let book = LogBook(), log = ManagerLog(book.logger, rest: .zero)
        let manager = ResourceManager(source: ScriptedPressureSource())
        let gone = try #require(try ServiceManager { $0 == "NOTIFY_SOCKET" ? directory + "/gone" : nil })
        let link = ServiceManagerLink(manager, gone) { log.cannotNotify($0) }
        for _ in 0..<3 {
            link.stopping(within: .seconds(5))
            link.poll()
        }
        #expect(book.entries.map(\.message) == ["cannot notify the service manager"])
    }
}

/// State that the service manager keeps from one run to the next.
@Suite(.timeLimit(.minutes(5))) final class ServiceManagerStateTests {
    private let directory = NSTemporaryDirectory() + "plimsoll-kept-\(UUID().uuidString.prefix(8))"
    private let socket: NotifySocket
    private let serviceManager: ServiceManager
    /// The names and files that the service manager keeps.
    private var kept: [(name: String, file: KeptDescriptor)] = []

    init() throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        let socket = try NotifySocket(directory: directory)
        self.socket = socket
        serviceManager = try #require(try ServiceManager { $0 == "NOTIFY_SOCKET" ? socket.path : nil })
    }

    deinit { try? FileManager.default.removeItem(atPath: directory) }

    private func listen() {
        while let notice = socket.receive() {
            let name = notice.message.descriptorName ?? "stored"
            if notice.message.removesDescriptors { kept.removeAll { $0.name == name } }
            if notice.message.storesDescriptors { kept += notice.descriptors.map { (name, $0) } }
        }
    }

    /// Returns the store of the next run, with separate files for the kept descriptors.
    private func nextRun() -> ServiceManagerStateStore {
        listen()
        return ServiceManagerStateStore(serviceManager, inherited: kept.map { ($0.name, dup($0.file.file)) })
    }

    @Test func `the next run reads one run's states, and each name is kept once`() throws {
        let store = nextRun(), odd = "cart of\n\"Zoë\": 100%"
        #expect(try store.read("cart") == nil)
        try store.write("cart", [1, 2, 3])
        try store.write("cart", [4, 5])
        try store.write(odd, [])
        #expect(try store.read("cart") == [4, 5])
        listen()
        #expect(kept.count == 2)
        let next = nextRun()
        #expect(try next.read("cart") == [4, 5] && next.read(odd) == [])
        try next.remove("cart")
        listen()
        #expect(kept.count == 1 && kept[0].name.hasSuffix(#"cart%20of%0A"Zo%C3%AB"%3A%20100%25"#))
    }

    @Test func `a run that ends after storing the new state and before dropping the old one leaves the new state`() throws {
        let store = nextRun()
        try store.write("cart", [1])
        listen()
        let old = kept[0]
        try store.write("cart", [2])
        listen()
        kept.insert(old, at: 0)
        #expect(try nextRun().read("cart") == [2])
        listen()
        #expect(kept.count == 1)
    }

    @Test func `a lost service manager is an error, and states read before are still there`() throws {
        let store = nextRun()
        try store.write("cart", [1])
        let gone = try #require(try ServiceManager { $0 == "NOTIFY_SOCKET" ? directory + "/gone" : nil })
        listen()
        let lost = ServiceManagerStateStore(gone, inherited: kept.map { ($0.name, dup($0.file.file)) })
        #expect(throws: ServiceManagerError.self) { try lost.write("cart", [2]) }
        #expect(throws: ServiceManagerError.self) { try lost.write(String(repeating: "x", count: 300), [2]) }
        #expect(try lost.read("cart") == [1])
    }

    private func fillQueue() { while (try? serviceManager.notify("WATCHDOG=1")) != nil {} }

    @Test func `T36 a removal that the service manager is not told of is an error, and the state stays`() throws {
        let store = nextRun()
        try store.write("cart", [1])
        listen()
        fillQueue()
        #expect(throws: ServiceManagerError.self) { try store.remove("cart") }
        listen()
        #expect(try store.read("cart") == [1] && nextRun().read("cart") == [1])
        try store.remove("cart")
        #expect(try store.read("cart") == nil && nextRun().read("cart") == nil)
        try store.remove("cart")
    }

    @Test func `T36 an earlier file that could not be removed is removed by the next call, and never read again`() throws {
        let store = nextRun()
        try store.write("cart", [1])
        listen()
        fillQueue()
        // One message has room: the new file's.
        #expect(socket.receive() != nil)
        try store.write("cart", [2])
        listen()
        #expect(kept.count == 2)
        fillQueue()
        #expect(throws: ServiceManagerError.self) { try store.remove("cart") }
        listen()
        try store.write("list", [3])
        #expect(try nextRun().read("cart") == [2])
        #expect(kept.count == 2)
        try store.remove("cart")
        #expect(try nextRun().read("cart") == nil)
    }

    @Test func `a state that is written after a removal has a label of its own`() throws {
        let store = nextRun()
        try store.write("cart", [1])
        listen()
        let first = kept.map(\.name)
        try store.remove("cart")
        try store.write("cart", [2])
        listen()
        #expect(kept.count == 1 && !first.contains(kept[0].name))
        #expect(try nextRun().read("cart") == [2])
    }

    @Test func `foreign files and files for another process are left alone`() {
        #expect(ServiceManagerStateStore.inherited { ["LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"][$0] }.isEmpty)
        let mine = ServiceManagerStateStore.inherited {
            ["LISTEN_PID": "\(getpid())", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "http:plimsoll.state.3.cart"][$0]
        }
        #expect(mine.map(\.name) == ["http", "plimsoll.state.3.cart"] && mine.map(\.file) == [3, 4])
        for label in ["http", "plimsoll.state.", "plimsoll.state.x.cart", "plimsoll.state.1.%G0", "plimsoll.state.1.%C3"] {
            #expect(ServiceManagerStateStore.parse(label) == nil, "\(label)")
        }
        #expect(ServiceManagerStateStore.parse("plimsoll.state.12.a.b%25")?.name == "a.b%")
    }
}

// The snippets of docs/Lifecycle.md, as in an application: no @testable here.
import Foundation
import Plimsoll
import PlimsollLifecycle
import PlimsollLinux
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

private final class Server: Sendable {
    private let log = Mutex<[String]>([])
    var steps: [String] { log.withLock { $0 } }
    private func add(_ step: String) { log.withLock { $0.append(step) } }

    func accept() { add("accept") }
    func stopAccepting() { add("stop") }
    func listen() async throws { add("listen") }
    func drain(within limit: Duration) async throws { add(limit > .zero ? "drain" : "late") }
    func removeTemporaryFiles() { add("clean") }
}

/// The content of a cart or a tenant.
private final class Shelf: Sendable {
    private let kept = Mutex<[UInt8]>([1, 2, 3])
    var bytes: [UInt8] { kept.withLock { $0 } }
    func load(_ bytes: [UInt8]) throws { kept.withLock { $0 = bytes } }
    func flush() async {}
}

/// Another process of the service, as far as this process knows the other.
private struct Peer: Sendable {
    let lifecycle: Lifecycle
    func take(_ request: String, _ payload: [UInt8]) async throws { try await lifecycle.activate(request, payload: payload) }
}

private final class Rows: Sendable {
    private let rest: Mutex<[UInt8]>
    init(count: UInt8) { rest = Mutex(Array(0..<count)) }
    var left: [UInt8] { rest.withLock { $0 } }

    /// Imports two rows. The third takes longer than any deadline.
    func importAll() async throws {
        rest.withLock { $0.removeFirst(2) }
        let (never, end) = AsyncStream.makeStream(of: Void.self)
        for await _ in never {}
        withExtendedLifetime(end) {}
        try Task.checkCancellation()
    }
}

private final class Election: Sendable {
    private let won = Mutex<UInt64>(0)
    var epoch: UInt64 { won.withLock { $0 } }
    func resign() async throws { won.withLock { $0 = 0 } }
    func campaign(_ epoch: UInt64) async throws { won.withLock { $0 = epoch } }
}

@Suite(.serialized, .timeLimit(.minutes(5))) struct LifecycleArticleTests {
    private func onManualClock() -> (manager: ResourceManager, lifecycle: Lifecycle, clock: ManualClock) {
        let clock = ManualClock()
        let manager = ResourceManager(source: ScriptedPressureSource(), clock: clock)
        return (manager, manager.lifecycle, clock)
    }

    @Test func `a service launches with run and terminates with the cancellation of run`() async throws {
        let server = Server()
        @Sendable func main() async throws {
            let manager = ResourceManager(source: LinuxPressureSource())
            let lifecycle = Lifecycle(manager)
            lifecycle.observe(
                "listener", onInactive: { _ in server.stopAccepting() }, onActive: { _ in server.accept() },
                onBackground: { context in try await server.drain(within: context.timeRemaining) }, onForeground: { _ in try await server.listen() })
            lifecycle.onTerminate("files") { _ in server.removeTemporaryFiles() }
            try await manager.run()  // launches; when it is cancelled it terminates in good order
        }
        let running = Task { try await main() }
        await until { !server.steps.isEmpty }
        running.cancel()
        try await running.value
        #expect(server.steps.first == "accept" && server.steps.last == "clean", "\(server.steps)")
    }

    @Test func `a life cycle goes to the background and back, and through an interruption`() async throws {
        let (_, lifecycle, _) = onManualClock()
        let report = try await lifecycle.enterBackground(cause: .idle)
        for late in report.overran { print("\(late.name), registered at \(late.origin), took more than \(late.took)") }
        try await lifecycle.enterForeground(cause: .operator)
        #expect(report.overran.isEmpty && lifecycle.state == .active)

        try await lifecycle.interrupt()
        try await lifecycle.endInterruption()  // with LifecyclePolicy.resumesManually it waits for resume()
        #expect(lifecycle.state == .active)
    }

    @Test func `background work runs by scope and by token`() async throws {
        let (manager, _, _) = onManualClock()
        let chunks = [1, 2, 3], uploaded = Mutex(0)
        @Sendable func upload(_ chunk: Int) async throws { uploaded.withLock { $0 += chunk } }
        @Sendable func checkpoint() async {}
        try await manager.withBackgroundTask("export") { task in
            for (index, chunk) in chunks.enumerated() {
                try await upload(chunk)
                task.progress(completed: index + 1, total: chunks.count)
            }
        } onExpiration: { task, reason in
            await checkpoint()
        }
        let task = manager.beginBackgroundTask("flush") { task, reason in task.end() }
        task.end()
        task.end()  // as often as you like, from anywhere
        #expect(uploaded.withLock { $0 } == 6 && !task.isActive && manager.backgroundTasks.isEmpty)
    }

    @Test func `a limiter and a ticker stop without a call and resume, and a lease lets work on`() async throws {
        let (_, lifecycle, clock) = onManualClock()
        let pushed = Mutex<[Int]>([])
        @Sendable func push(missed: Int) async { pushed.withLock { $0.append(missed) } }
        @Sendable func render() async throws -> String { "page" }
        try await lifecycle.launch()
        let limiter = ConcurrencyLimiter("render", limit: 64)
        let ticker = Ticker("metrics", every: .seconds(10)) { missed in await push(missed: missed) }
        lifecycle.pausables.add(limiter)
        lifecycle.pausables.add(ticker)
        let page = try await limiter.run { try await render() }  // waits while nothing is admitted
        let lease = lifecycle.pausables.lease("billing", admitting: "billing")  // members of that class go on in the background
        clock.advance(by: .seconds(10))
        await until { !pushed.withLock { $0.isEmpty } }
        clock.freeze(for: .seconds(60))
        await until {
            clock.advance(by: .seconds(1))
            return pushed.withLock { $0.count } >= 2
        }
        #expect(page == "page" && pushed.withLock { $0[0] == 0 && $0[1] > 4 }, "\(pushed.withLock { $0 })")
        lease.cancel()
    }

    @Test func `in the background the process gives up leadership and wipes secrets`() async throws {
        let (_, lifecycle, _) = onManualClock()
        let election = Election(), committed = Mutex(0)
        func prepare() async -> Int { 7 }
        func commit(_ plan: Int) async throws { committed.withLock { $0 = plan } }
        func readKey(into bytes: inout MutableRawSpan) { bytes.storeBytes(of: 9, as: UInt8.self) }
        func sign(_ bytes: RawSpan) -> UInt8 { bytes.unsafeLoad(as: UInt8.self) }
        try await lifecycle.launch()
        let leader = ExclusiveResource(
            "leader", lease: .seconds(15), release: { try await election.resign() },
            reacquire: { epoch in try await election.campaign(epoch) })
        try lifecycle.exclusive.add(leader)
        try await leader.withUse { epoch in
            let plan = await prepare()
            try leader.check(epoch)  // throws if the process was frozen meanwhile: somebody else may lead by now
            try await commit(plan)
        }
        let key = lifecycle.keep(try Secret("signing key", byteCount: 32) { bytes in readKey(into: &bytes) })
        let signature = key.withBytes { bytes in sign(bytes) }  // nil once it was wiped
        #expect(signature == 9 && committed.withLock { $0 } == 7)
        try await lifecycle.enterBackground(cause: .idle)
        #expect(key.isWiped && !leader.isHeld && election.epoch == 0)
        try await lifecycle.enterForeground(cause: .operator)
        #expect(leader.isHeld && election.epoch == leader.epoch)
    }

    @Test func `saved state comes back with the next run`() async throws {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("plimsoll-article-\(UUID())").path
        defer { try? FileManager.default.removeItem(atPath: directory) }
        for contents: [UInt8] in [[7], [8]] {
            let (_, lifecycle, _) = onManualClock()
            let cart = Shelf()
            let store = FileStateStore(directory: directory)
            lifecycle.preserve("cart", in: store, snapshot: { cart.bytes }, restore: { bytes in try cart.load(bytes) })
            try await lifecycle.launch()
            #expect(cart.bytes == (contents == [7] ? [1, 2, 3] : [7]))
            try cart.load(contents)
            await lifecycle.terminate()
        }
    }

    @Test func `environment changes are reported after a gap`() async throws {
        let (_, lifecycle, _) = onManualClock()
        let notified = Mutex<[EnvironmentChange]>([])
        lifecycle.onEnvironmentChange("log") { change in notified.withLock { $0.append(change) } }
        let reader = Task {
            lifecycle.watch(file: "/etc/service.conf")
            for await change in lifecycle.environmentChanges {
                print(change.kind, "changed, by", change.count, "events")  // one a kind, and none if all is as it was
            }
        }
        lifecycle.post(.custom("maintenance"), .flag(true))
        await until { !notified.withLock { $0.isEmpty } }
        reader.cancel()
        await reader.value
        #expect(notified.withLock { $0.map(\.kind) } == [.custom("maintenance")])
    }

    @Test func `a scene connects and goes to the background`() async throws {
        let (_, lifecycle, _) = onManualClock()
        let store = Shelves(), tenant = Shelf()
        let cache = PurgeableCache<String, [UInt8]>("tenant-42", cost: { _, value in value.count })
        let scene = lifecycle.connectScene("tenant-42", reason: .userRequest) { scene in
            scene.register(cache, purgesOnBackground: true)
            scene.preserve(in: store, snapshot: { tenant.bytes }, restore: { bytes in try tenant.load(bytes) })
            scene.observe("tenant", onBackground: { _ in await tenant.flush() })
        }
        try await scene.enterBackground(cause: .idle)
        #expect(scene.state == .background && lifecycle.state == .background)
    }

    @Test func `an outside request activates the process`() async throws {
        let (_, lifecycle, _) = onManualClock()
        let opened = Mutex<[String]>([])
        @Sendable func open(_ name: String, _ payload: [UInt8]) async { opened.withLock { $0.append(name) } }
        lifecycle.onActivation("admin") { request, payload in await open(request, payload) }
        try await lifecycle.activate("tenant-42")  // brings the process to the front first
        #expect(opened.withLock { $0 } == ["tenant-42"] && lifecycle.state == .active)
    }

    @Test func `C4 no handler is notified of a freeze beforehand, and all observers are notified afterwards`() async throws {
        let clock = ManualClock()
        let manager = ResourceManager(source: ScriptedPressureSource(), clock: clock)
        let lifecycle = Lifecycle(manager), server = Server()
        lifecycle.observe(
            "listener", onInactive: { _ in server.stopAccepting() },
            onBackground: { context in try await server.drain(within: context.timeRemaining) },
            onForeground: { _ in try await server.listen() })
        lifecycle.onResume("files") { _ in server.removeTemporaryFiles() }
        try await lifecycle.enterBackground(cause: .simulated)
        let transitions = lifecycle.transitions
        clock.freeze(for: .seconds(3600))
        var states: [LifecycleState] = []
        for await step in transitions.prefix(2) { states.append(step.to) }
        await until { server.steps.last == "clean" }
        #expect(server.steps == ["stop", "drain", "clean"] && states == [.suspended, .background])
    }

    @Test func `a test can rehearse a freeze`() async throws {
        let clock = ManualClock()
        let manager = ResourceManager(source: ScriptedPressureSource(), clock: clock)
        let lifecycle = Lifecycle(manager)
        lifecycle.onResume("leases") { context in print("away for", context.gap?.length ?? .zero) }
        try await lifecycle.enterBackground(cause: .simulated)
        let transitions = lifecycle.transitions
        clock.freeze(for: .seconds(3600))
        for await step in transitions.prefix(2) { print(step) }  // background → suspended, suspended → background
        #expect(lifecycle.state == .background)
    }

    @Test func `C73 work begun by an ending process is handed to a peer`() async throws {
        let (manager, lifecycle, _) = onManualClock(), other = onManualClock().lifecycle
        let taken = Mutex<[UInt8]>([])
        other.onActivation("rows") { _, payload in taken.withLock { $0 = payload } }
        let peer = Peer(lifecycle: other), rows = Rows(count: 10)
        try await lifecycle.launch()
        let work = Task {
            manager.onHandover { work in try await peer.take(work.name, work.bytes) }
            try await manager.withBackgroundTask("rows") { task in
                try await rows.importAll()
            } onExpiration: { task, reason in
                task.handOver(rows.left)
            }
        }
        await until { rows.left.count != 10 }
        await lifecycle.terminate()
        await #expect(throws: CancellationError.self) { try await work.value }
        #expect(taken.withLock { $0 } == rows.left && !rows.left.isEmpty && other.state == .active && lifecycle.state == .notRunning)
    }

    @Test func `T39 a pause reaches members only: other threads and children run on`() async throws {
        let (_, lifecycle, _) = onManualClock()
        try await lifecycle.interrupt()
        #expect(lifecycle.pausables.extent().isPaused)
        let child = Process(), question = Pipe(), answer = Pipe()
        child.executableURL = URL(fileURLWithPath: "/bin/cat")
        (child.standardInput, child.standardOutput) = (question, answer)
        try child.run()
        let answered = AsyncStream.makeStream(of: Data.self)
        // A thread outside the library, which talks to the child.
        Thread.detachNewThread {
            question.fileHandleForWriting.write(Data("still here".utf8))
            try? question.fileHandleForWriting.close()
            answered.continuation.yield(answer.fileHandleForReading.readDataToEndOfFile())
        }
        for await data in answered.stream {
            #expect(data == Data("still here".utf8))
            break
        }
        child.waitUntilExit()
        #expect(lifecycle.state == .inactive && child.terminationStatus == 0)
    }

    // MARK: The article

    private static let article = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appendingPathComponent("docs/Lifecycle.md")

    @Test(.needs(FileManager.default.fileExists(atPath: article.path), "the sources are not at hand"))
    func `this file compiles the article's snippets word for word`() throws {
        func lines(_ text: String) -> [Substring] { text.split(separator: "\n").map { $0.drop { $0 == " " } } }
        let own = lines(try String(contentsOfFile: #filePath, encoding: .utf8)).joined(separator: "\n")
        let parts = try String(contentsOf: Self.article, encoding: .utf8).split(separator: "```", omittingEmptySubsequences: false)
        let snippets = parts.filter { $0.hasPrefix("swift\n") }.map { lines(String($0)).dropFirst() }
        #expect(snippets.count > 8)
        for snippet in snippets {
            #expect(own.contains(snippet.joined(separator: "\n")), "the snippet that begins with: \(snippet.first ?? "")")
        }
    }
}

/// State in memory.
private final class Shelves: StateStore {
    private let shelf = Mutex<[String: [UInt8]]>([:])
    func write(_ name: String, _ bytes: [UInt8]) throws { shelf.withLock { $0[name] = bytes } }
    func read(_ name: String) throws -> [UInt8]? { shelf.withLock { $0[name] } }
    func remove(_ name: String) throws { shelf.withLock { $0[name] = nil } }
}

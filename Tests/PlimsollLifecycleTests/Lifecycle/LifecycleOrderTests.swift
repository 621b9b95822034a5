import Glibc
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The order in which the parts of a real `Lifecycle` run, in each direction.
@Suite(.serialized, .timeLimit(.minutes(5))) struct LifecycleOrderTests {
    let stage = Stage()
    var lifecycle: Lifecycle { stage.lifecycle }
    var log: Log<String> { stage.log }

    /// Adds a part of each kind that logs its calls. The lease runs out when the holder is frozen.
    private func addParts() throws {
        let log = log, lifecycle = lifecycle, manager = stage.manager
        stage.observe("observer")
        lifecycle.pausables.add(Recorder("queue", nil, log))
        for name in ["lease", "listener"] {
            let resource = ExclusiveResource(
                name, after: name == "lease" ? ["listener"] : [], lease: name == "lease" ? .zero : nil,
                release: { log.add("\(name) given back") }, reacquire: { _ in log.add("\(name) taken") })
            try lifecycle.exclusive.add(resource)
        }
        manager.register("cache", purgesOnBackground: true, byteCount: { 1000 }) { (_: Int) in
            log.add("cache purged")
            return 1000
        }
        lifecycle.preserve(
            "cart", in: MemoryStateStore(),
            snapshot: {
                log.add("cart saved")
                return []
            }, restore: { _ in })
        lifecycle.onScrub("keys") { log.add("keys erased") }
        // Posted when the process runs again, before the process checks for changes.
        lifecycle.onResume("pools") { _ in
            log.add("resumed")
            lifecycle.post(.credentials("tenant"))
        }
        lifecycle.onTerminate("files") { _ in log.add("files cleaned up") }
        lifecycle.onEnvironmentChange("credentials", .credentials("tenant")) { _ in log.add("credentials changed") }
    }

    private func steps(after count: Int) -> [String] { Array(log.all[count...]) }

    private static let down = [
        "queue: paused", "observer inactive",
        "observer background", "listener given back", "lease given back", "cache purged", "cart saved", "keys erased", "queue: background",
    ]
    private static let up = [
        "lease taken", "listener taken", "observer foreground", "queue: paused", "observer active", "queue: open",
    ]

    @Test func `C5 C6 C38 C39 C41 C44 C48 C87 the ways down and up run each part in order`() async throws {
        try addParts()
        try await lifecycle.launch()
        #expect(log.all == ["queue: paused", "observer active", "queue: open"])
        for _ in 0..<3 {
            var begun = log.all.count
            #expect(try await lifecycle.enterBackground(cause: .operator).isClean)
            #expect(steps(after: begun) == Self.down)
            #expect(lifecycle.heldResources.isEmpty)
            begun = log.all.count
            #expect(try await lifecycle.enterForeground(cause: .operator).isClean)
            #expect(steps(after: begun) == Self.up)
        }
    }

    @Test func `C17 C60 after a freeze the order is: gates closed, resume handlers, changes, leases, admission, timers`() async throws {
        let log = log, lifecycle = lifecycle
        try addParts()
        try await lifecycle.launch()
        let limiter = ConcurrencyLimiter("requests", limit: 8)
        lifecycle.pausables.add(limiter)
        // A request that comes while changes are delivered is not admitted, and no member is open.
        let extents = Log<QuiesceExtent>(), waiting = Counter()
        lifecycle.onEnvironmentChange("rebuilder", .credentials("tenant")) { _ in
            extents.add(lifecycle.pausables.extent())
            Task {
                try await limiter.run { log.add("request admitted") }
                waiting.add(1)
            }
            blockUntil("the request waits") { limiter.statistics.waiting > 0 }
            extents.add(lifecycle.pausables.extent())
        }
        let begun = log.all.count
        let timer = stage.manager.parts.alarms
        timer.set(.timer, after: .seconds(30)) { log.add("timer") }
        stage.clock.freeze(for: .seconds(60))
        await until("the timer goes off and the request is admitted") { log.all.contains("timer") && waiting.value == 1 }
        // The request runs in a task of its own, beside the timers. Admitted before the timers, the request may end
        // after them.
        let seen = steps(after: begun).filter { $0 != "request admitted" }
        #expect(seen == ["queue: held", "resumed", "credentials changed", "lease taken", "queue: open", "timer"])
        #expect(extents.all.allSatisfy(\.isHeld) && extents.all.count == 2)
    }

    @Test func `C17 C46 C58 after a freeze in the background the order is: resume handlers, changes, a save, erasure`() async throws {
        let log = log
        try addParts()
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .supervisor)
        let begun = log.all.count
        stage.clock.freeze(for: .seconds(60))
        await until("the process has arrived again") { log.all.last == "keys erased" && lifecycle.arrival == true }
        #expect(
            steps(after: begun)
                == ["queue: held", "resumed", "credentials changed", "queue: background", "cart saved", "keys erased"])
        #expect(lifecycle.heldResources.isEmpty)
    }

    @Test func `C12 C22 C44 C48 termination stops work, then saves all, then cleans up, then erases, with nothing held`() async throws {
        let log = log
        try addParts()
        try await lifecycle.launch()
        let task = stage.manager.beginBackgroundTask("upload") { task, reason in
            log.add("upload stopped")
            task.end()
        }
        #expect(lifecycle.heldResources == ["lease", "listener"])
        let begun = log.all.count
        let report = await lifecycle.terminate(cause: .signal)
        #expect(
            steps(after: begun) == [
                "queue: paused", "observer inactive", "upload stopped", "listener given back", "lease given back", "cart saved",
                "files cleaned up", "keys erased",
            ])
        #expect(report.isClean && lifecycle.heldResources.isEmpty && !task.isActive && lifecycle.state == .notRunning)
    }

    @Test func `C22 C85 a process ending under pressure stops work, saves, cleans up, and writes the last line`() async throws {
        let log = log, manager = stage.manager, clock = stage.clock, release = Blockade(), exits = stage.exits
        stage.observe("observer")
        // The save is slow: meanwhile nothing is cleaned up that the save may need.
        manager.beforeTermination("cart") { _ in
            release.wait()
            log.add("cart saved")
        }
        manager.lifecycle.onTerminate("files") { log.add("files cleaned up (\($0.cause)), \(exits.count) lines") }
        try await manager.lifecycle.launch()
        let ended = Counter()
        manager.parts.threads.run { () -> Void in
            // A part of the grace is measured on the real clock, and threads run late on a busy machine.
            Ending(parts: manager.parts, time: clock.timekeeper).end(within: .seconds(200), after: .seconds(30), PressureReading(at: .zero))
            ended.add(1)
        }
        await until("work has stopped and the saving waits") { log.all.last == "observer inactive" && release.count == 1 }
        release.open()
        await until("it has ended") { ended.value == 1 }
        #expect(log.all == ["observer active", "observer inactive", "cart saved", "files cleaned up (pressure), 0 lines"])
        #expect(stage.exits.count == 1 && stage.exits.first?.status == 75)
    }

    @Test func `C22 C41 a hanging tick takes half of the time left, and saving has the other half`() async throws {
        let held = Latch(), began = Counter(), left = Log<Duration>(), lifecycle = lifecycle, clock = stage.clock
        lifecycle.pausables.add(
            Ticker("orders", every: .seconds(1)) { _ in
                began.add(1)
                await held.wait()
            })
        let heartbeat = stage.manager.parts.heartbeat, start = Mutex(Duration.zero)
        // The first step of the termination. Before, the clock may have moved for any time.
        lifecycle.observe("start", onInactive: { _ in start.withLock { $0 = heartbeat.running } })
        lifecycle.preserve(
            "orders", in: MemoryStateStore(),
            snapshot: {
                left.add(heartbeat.running - start.withLock { $0 })
                return []
            }, restore: { _ in })
        try await lifecycle.launch()
        clock.advance(by: .seconds(1))
        await until("the tick has begun") { began.value == 1 }
        let report = try await stage.whileTimePasses { await lifecycle.terminate(cause: .signal, within: .seconds(10)) }
        #expect(report.overran.map(\.name) == ["orders"], "\(report)")
        #expect(left.all.count == 1 && left.all[0] >= .seconds(5) && left.all[0] <= .seconds(6), "\(left.all)")
        held.open()
    }

    @Test func `C21 a launch beyond the budget reports the excess and the culprit`() async throws {
        let release = Blockade(), lifecycle = lifecycle, log = log
        lifecycle.observeLaunch("index", willRestore: { release.wait() })
        lifecycle.observeLaunch("cart", didRestore: { _ in log.add("cart ready") })
        let report = try await stage.whileTimePasses(beside: release) { try await lifecycle.launch() }
        #expect(report.overran.map(\.name) == ["index"] && report.took >= .seconds(5) && report.took < .seconds(7), "\(report)")
        #expect(log.all == ["cart ready"] && lifecycle.state == .active && lifecycle.readiness.isReady)
        #expect(lifecycle.reports.first?.overran.first?.origin.contains("LifecycleOrderTests.swift") == true)
        release.open()
    }

    // MARK: Contracts told by several parts together

    @Test func `C2 C40 an inactive process admits nothing, goes on with work in flight, and is not ready`() async throws {
        let limiter = ConcurrencyLimiter("requests", limit: 8), held = Latch(), log = log, lifecycle = lifecycle
        lifecycle.pausables.add(limiter)
        try await lifecycle.launch()
        let inFlight = Task {
            try await limiter.run {
                await held.wait()
                log.add("in flight: \(lifecycle.state)")
            }
        }
        await until("one is in flight") { limiter.statistics.running == 1 }
        try await lifecycle.interrupt()
        #expect(lifecycle.state == .inactive && !lifecycle.readiness.isReady && limiter.statistics.running == 1)
        let late = Task { try await limiter.run { log.add("late") } }
        await until("another waits") { limiter.statistics.waiting == 1 }
        held.open()
        try await inFlight.value
        #expect(limiter.statistics.waiting == 1 && limiter.statistics.admitted == 1)
        try await lifecycle.endInterruption()
        try await late.value
        #expect(log.all == ["in flight: inactive", "late"] && lifecycle.readiness.isReady)
    }

    @Test func `C8 C87 an interruption purges no cache that goes in the background`() async throws {
        let purged = Counter()
        stage.manager.register("cache", purgesOnBackground: true, byteCount: { 1000 }) { (bytes: Int) in
            purged.add(1)
            return bytes
        }
        try await lifecycle.launch()
        for _ in 0..<2 {
            try await lifecycle.interrupt()
            try await lifecycle.endInterruption()
        }
        #expect(purged.value == 0 && lifecycle.state == .active)
        try await lifecycle.enterBackground(cause: .operator)
        #expect(purged.value == 1)
    }

    @Test func `C29 C30 a token held across the callback gives the callback no more time, and has separate time after`() async throws {
        let release = Blockade(), tokens = Log<BackgroundTask>(), lifecycle = lifecycle, manager = stage.manager
        lifecycle.observe(
            "saver",
            onBackground: { _ in
                tokens.add(manager.beginBackgroundTask("upload") { task, _ in task.end() })
                release.wait()
            })
        lifecycle.observe("quick", onBackground: { _ in tokens.add(manager.beginBackgroundTask("sync") { task, _ in task.end() }) })
        try await lifecycle.launch()
        let way = Task { try await lifecycle.enterBackground(cause: .operator) }
        await until("the arrival in the background") {
            // The clock moves while only the saver is busy, and stands still from the arrival on. In this order: the
            // process has arrived before the other threads are idle.
            let isSaverAlone = release.count == 1 && manager.parts.threads.busy == 1
            if lifecycle.arrival != nil { return true }
            if isSaverAlone { stage.clock.advance(by: ManualClock.step) }
            return false
        }
        let report = try await way.value
        #expect(report.overran.contains { $0.name == "saver" && $0.took >= .seconds(5) && $0.took < .seconds(6) }, "\(report)")
        #expect(lifecycle.state == .background && tokens.all.count == 2)
        // Some of the allowance may have passed by now.
        let left = try #require(tokens.all[0].timeRemaining)
        #expect(tokens.all.allSatisfy { $0.isActive && $0.timeRemaining == left } && left > .seconds(12) && left <= .seconds(30))
        stage.clock.advance(by: .seconds(10))
        #expect(tokens.all.allSatisfy { $0.isActive && $0.timeRemaining == left - .seconds(10) })
        release.open()
        for token in tokens.all { token.end() }
    }

    @Test func `C30 T6 handlers run beside each other, at most eight at once`() async throws {
        let release = Blockade(), width = Tally(), lifecycle = lifecycle
        for index in 0..<20 {
            lifecycle.observe(
                "\(index)",
                onBackground: { _ in
                    width.add(1)
                    release.wait()
                    width.add(-1)
                })
        }
        try await lifecycle.launch()
        let report = Task { try await lifecycle.enterBackground(cause: .operator) }
        // The clock stands still, so no handler overtakes those that run.
        await until("eight run, and no further thread is busy") { width.count == 8 && stage.manager.parts.threads.busy == 8 }
        release.open()
        #expect(try await report.value.isClean)
        #expect(width.most == 8 && width.count == 0)
    }

    @Test func `C49 before a freeze readiness fails, discovery ends, accepting ends, and the listener is handed on`() async throws {
        let log = log, lifecycle = lifecycle, listener = try HandedListener()
        @Sendable func state(_ what: String) { log.add("\(what), ready: \(lifecycle.readiness.isReady), accepts: \(listener.accepts())") }
        lifecycle.observe("proxy", onInactive: { _ in state("inactive") })
        // Dependents of the listener leave discovery before the listener is handed on.
        try lifecycle.exclusive.add(ExclusiveResource("discovery", release: { state("out of discovery") }))
        try lifecycle.exclusive.add(
            ExclusiveResource(
                "http", after: ["discovery"], drain: { _ in state("drained") },
                release: {
                    // As with a supervisor's descriptor store: another descriptor keeps the socket, and this process
                    // closes its own.
                    listener.handOn()
                    state("handed on")
                }))
        try await lifecycle.launch()
        #expect(lifecycle.readiness.isReady && lifecycle.heldResources == ["discovery", "http"])
        try await lifecycle.enterBackground(cause: .supervisor)
        #expect(
            log.all == [
                "inactive, ready: false, accepts: true", "out of discovery, ready: false, accepts: true", "drained, ready: false, accepts: true",
                "handed on, ready: false, accepts: true",
            ])
        #expect(lifecycle.heldResources.isEmpty && listener.isHandedOn)
        // The new owner serves the clients that came meanwhile. Once the new owner ends, no client is left waiting.
        #expect(listener.takeOver() > 0)
        #expect(!listener.accepts())
    }

    @Test func `C11 the sleep button gives inactive, asleep, active, without a background`() async throws {
        stage.observe("observer")
        try await lifecycle.launch()
        let begun = log.all.count, gaps = Log<String>()
        lifecycle.onResume("gap") { gaps.add("\($0.from) \($0.to) \($0.gap?.kind.rawValue ?? "")") }
        try await lifecycle.interrupt(cause: .hostSleep)
        stage.clock.sleepHost(for: .seconds(3600))
        await until("the sleep is noticed") { !gaps.all.isEmpty }
        #expect(lifecycle.state == .inactive)
        try await lifecycle.endInterruption(cause: .hostSleep)
        #expect(lifecycle.state == .active && gaps.all == ["inactive inactive hostSleep"])
        #expect(steps(after: begun) == ["observer inactive", "observer active"])
    }

    @Test func `C41 leaving the foreground saves once, after the handlers, and returning saves nothing`() async throws {
        let log = log, changes = Counter(), held = Blockade(), store = MemoryStateStore(), lifecycle = lifecycle
        lifecycle.observe("slow", onInactive: { _ in held.wait() })
        lifecycle.preserve(
            "cart", in: store,
            snapshot: {
                log.add("cart saved with \(changes.value), \(lifecycle.state)")
                return [UInt8(changes.value)]
            }, restore: { _ in })
        try await lifecycle.launch()
        let way = Task { try await lifecycle.interrupt() }
        await until("the handler is called") { held.count == 1 }
        // The save is the last stage, so the changes of a handler are saved.
        #expect(log.all.isEmpty)
        changes.add(1)
        held.open()
        #expect(try await way.value.isClean)
        #expect(lifecycle.state == .inactive && log.all == ["cart saved with 1, inactive"])
        changes.add(1)
        try await lifecycle.endInterruption()
        #expect(lifecycle.state == .active && log.all.count == 1)
    }
}

/// A socket that listens on the loopback and can be passed to another owner.
private final class HandedListener: Sendable {
    private struct State {
        var own: Int32
        var other: Int32 = -1
    }

    private struct Failure: Error { var code = errno }

    private let state: Mutex<State>
    private let address: sockaddr_in

    init() throws {
        let socket = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        state = Mutex(State(own: socket))
        var address = sockaddr_in(), length = socklen_t(MemoryLayout<sockaddr_in>.size)
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32.random(in: 0x7f01_0000...0x7ffe_ffff).bigEndian
        let bound = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { name in
                bind(socket, name, length) == 0 && listen(socket, 64) == 0 && getsockname(socket, name, &length) == 0
            }
        }
        self.address = address
        guard bound else { throw Failure() }
    }

    deinit { state.withLock { for socket in [$0.own, $0.other] where socket >= 0 { close(socket) } } }

    /// Returns true if the kernel completes a handshake for the socket, with any owner.
    func accepts() -> Bool {
        let client = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { close(client) }
        var address = address
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(client, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
        } == 0
    }

    /// Duplicates the descriptor for another owner, and closes the descriptor of this process.
    func handOn() {
        state.withLock { state in
            state.other = fcntl(state.own, F_DUPFD_CLOEXEC, 0)
            close(state.own)
            state.own = -1
        }
    }

    var isHandedOn: Bool { state.withLock { $0.own < 0 && $0.other >= 0 } }

    /// Accepts all waiting clients as the new owner, and closes the socket.
    ///
    /// - Returns: The number of clients.
    func takeOver() -> Int {
        state.withLock { state in
            var count = 0
            while case let client = accept(state.other, nil, nil), client >= 0 {
                close(client)
                count += 1
            }
            shutdown(state.other, Int32(SHUT_RDWR))
            close(state.other)
            state.other = -1
            return count
        }
    }
}

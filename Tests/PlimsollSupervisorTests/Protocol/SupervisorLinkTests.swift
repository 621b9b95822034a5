import Glibc
import PlimsollLifecycle
import PlimsollLinux
import PlimsollSupervisor
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

@Suite struct SupervisorLinkTests {
    /// A supervisor that takes no action on its own.
    ///
    /// Unchecked: only one thread at a time uses the object. The test awaits each call, and the work on a separate
    /// thread ends before the call does.
    private final class Supervisor: @unchecked Sendable {
        let server: ChannelServer
        var peer: ChannelServer.Peer?
        var received: [ChildMessage] = []
        var closings: [ChannelServer.Closing] = []
        var opened = 0
        /// The shortest keep-alive interval that is granted.
        var leastKeepAlive = Duration.seconds(900)

        init(_ directory: Fixture.Directory) throws { server = try ChannelServer(directory: directory.path) { _, _ in "web" } }

        /// Serves until `condition` holds, off the cooperative pool, which other tests need. Returns false if no event
        /// comes for a minute.
        func serve(until condition: @escaping @Sendable (Supervisor) -> Bool) async -> Bool {
            await withCheckedContinuation { done in
                let isStarted = Thread.start("supervisor") { done.resume(returning: self.serveHere(until: condition)) }
                if !isStarted { done.resume(returning: false) }
            }
        }

        private func serveHere(until condition: (Supervisor) -> Bool) -> Bool {
            while !condition(self) {
                guard Fixture.isReadable(server.file) else { return false }
                for event in server.turn(at: .zero) {
                    switch event {
                    case .opened(let peer): (self.peer, opened) = (peer, opened + 1)
                    case .message(_, .keepAlive(let interval), let number):
                        received.append(.keepAlive(every: interval))
                        if let peer { server.send(.keepAlive(answerTo: number, accepted: interval >= leastKeepAlive), to: peer.id) }
                    case .message(_, let message, _): received.append(message)
                    case .closed(_, let closing): closings.append(closing)
                    }
                }
            }
            return true
        }

        func waits(for message: ChildMessage) async -> Bool { await serve { $0.received.contains(message) } }

        func send(_ message: SupervisorMessage) -> Bool {
            received = []
            return peer.map { server.send(message, to: $0.id) } ?? false
        }

        /// Returns true if `message` can be sent and leads to `answer`.
        func send(_ message: SupervisorMessage, for answer: ChildMessage) async -> Bool {
            guard send(message) else { return false }
            return await waits(for: answer)
        }
    }

    private final class Holder: Sendable {
        private let bytes = Mutex(8 << 20)
        var held: Int { bytes.withLock { $0 } }
        func release(_ count: Int) -> Int {
            bytes.withLock { bytes in
                let gone = min(count, bytes)
                bytes -= gone
                return gone
            }
        }
    }

    private let directory = Fixture.Directory()

    private func link(
        _ manager: ResourceManager, _ supervisor: Supervisor, onEnding: (@Sendable (Duration) -> Void)? = nil
    ) throws -> SupervisorLink {
        try SupervisorLink(manager, path: supervisor.server.path, kernel: HostKernel(), firstPause: .milliseconds(1), onEnding: onEnding)
    }

    @Test(
        arguments: [
            (nil, "cannot connect to a supervisor because $PLIMSOLL_SUPERVISOR is not set: the process runs without one"),
            ("", "cannot connect to a supervisor because $PLIMSOLL_SUPERVISOR is not set: the process runs without one"),
            ("run/x", "$PLIMSOLL_SUPERVISOR is \"run/x\"; allowed is an absolute path of at most 107 bytes"),
            (
                "/" + String(repeating: "x", count: 107),
                "$PLIMSOLL_SUPERVISOR is \"/\(String(repeating: "x", count: 107))\"; allowed is an absolute path of at most 107 bytes"
            ),
        ] as [(String?, String)])
    func `a service without a supervisor has no link, and a reason`(path: String?, reason: String) {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let error = #expect(throws: SupervisorLinkError.self) { try SupervisorLink(manager, path: path, kernel: HostKernel()) }
        #expect(error?.description == reason && error?.isAlone == (path ?? "").isEmpty)
    }

    @Test func `a service reports the state and the held bytes, and releases the requested bytes`() async throws {
        let supervisor = try Supervisor(directory), manager = ResourceManager(source: ScriptedPressureSource()), holder = Holder()
        manager.register("images", byteCount: { holder.held }, release: { (bytes: Int) in holder.release(bytes) })
        let link = try link(manager, supervisor)
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(
            supervisor.received == [
                .tasks(0, until: nil), .caches(held: .mebibytes(8), reclaimable: .mebibytes(8)), .saved(false), .locks(false), .state(.foreground),
            ])
        #expect(await supervisor.send(.release(.mebibytes(3)), for: .caches(held: .mebibytes(5), reclaimable: .mebibytes(5))))
        // The bytes are gone before the release is reported.
        #expect(await until("the report of the release") { manager.reports.last?.asked == .mebibytes(3) })
        link.close()
        #expect(await supervisor.serve { $0.closings == [.left] })
    }

    @Test func `C4 on the supervisor's order a service goes to the background, reports ready, and comes back`() async throws {
        let supervisor = try Supervisor(directory), manager = ResourceManager(source: ScriptedPressureSource())
        let calls = Mutex<[String]>([])
        try await manager.lifecycle.launch()
        manager.lifecycle.observe(
            "listener", onBackground: { _ in calls.withLock { $0.append("down") } }, onForeground: { _ in calls.withLock { $0.append("up") } })
        let link = try link(manager, supervisor)
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(await supervisor.send(.background(deadline: .seconds(5)), for: .state(.suspendedReady)))
        #expect(supervisor.received.contains(.saved(true)) && manager.lifecycle.state == .background)
        // The link tells of the state before the life cycle reports the request.
        #expect(await until("the report of the request") { manager.lifecycle.reports.last?.transitions.last?.cause == .supervisor })
        #expect(await supervisor.send(.resume, for: .state(.foreground)))
        // For the link, an inactive process is in the foreground as well.
        #expect(await until("the active state") { manager.lifecycle.state == .active })
        #expect(calls.withLock { $0 } == ["down", "up"])
        // A change of state by another cause is reported, too.
        supervisor.received = []
        try await manager.lifecycle.enterBackground(cause: .operator)
        #expect(await supervisor.waits(for: .state(.suspendedReady)))
        withExtendedLifetime(link) {}
    }

    @Test func `C43 K33 a report of saved state is withdrawn before the foreground can accept new work`() async throws {
        let supervisor = try Supervisor(directory), manager = ResourceManager(source: ScriptedPressureSource())
        let received = Parker(), isAsked = Mutex(false)
        try await manager.lifecycle.launch()
        let link = try link(manager, supervisor)
        manager.lifecycle.observe(
            "listener",
            onForeground: { _ in
                isAsked.withLock { $0 = true }
                _ = received.park(atMost: .seconds(20))
            })
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(await supervisor.send(.background(deadline: .seconds(5)), for: .saved(true)))
        supervisor.received = []
        async let report = manager.lifecycle.enterForeground(cause: .operator)
        #expect(await supervisor.waits(for: .saved(false)))
        // The service is not back in the foreground yet.
        #expect(manager.lifecycle.state == .background && !supervisor.received.contains(.state(.foreground)))
        received.unpark()
        _ = try await report
        #expect(isAsked.withLock { $0 })
        withExtendedLifetime(link) {}
    }

    @Test func `C43 K33 T33 a report of saved state is withdrawn before a background task can change that state`() async throws {
        let supervisor = try Supervisor(directory), manager = ResourceManager(source: ScriptedPressureSource())
        try await manager.lifecycle.launch()
        let link = try link(manager, supervisor)
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(await supervisor.send(.background(deadline: .seconds(5)), for: .state(.suspendedReady)))
        #expect(supervisor.received.contains(.saved(true)))
        supervisor.received = []
        let task = manager.beginBackgroundTask("flush", onExpiration: { _, _ in })
        // The message must be there already: the next poll would come a second later.
        var file = pollfd(fd: supervisor.server.file, events: Int16(POLLIN), revents: 0)
        #expect(poll(&file, 1, 0) == 1)
        #expect(await supervisor.waits(for: .saved(false)))
        task.end()
        withExtendedLifetime(link) {}
    }

    @Test func `a supervisor learns the worth of memory to a service, and the service's share ends with the link`() async throws {
        let supervisor = try Supervisor(directory)
        let manager = ResourceManager(source: ScriptedPressureSource(), policy: PressurePolicy(division: .byWorth))
        let cache = PurgeableCache<Int, Int>("cache") { _, value in value }, registration = manager.register(cache)
        try await manager.lifecycle.launch()
        let link = try link(manager, supervisor)
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(supervisor.send(.share(ProcessShare(bytes: 1 << 20, total: 8 << 20))))
        // Orders are carried out one after another, so the share is set once the next order is answered.
        #expect(await supervisor.send(.checkpoint, for: .saved(true)))
        var random = SeededGenerator(seed: usualSeed(7))
        // Rounds as in a running manager.
        func round() {
            manager.parts.divider.round { _, body in
                body()
                return true
            }
        }
        for _ in 0..<50 where manager.worthOffer?.curve.isReliable != true {
            round()
            for _ in 0..<20_000 {
                let key = Int.random(in: 0..<Int.random(in: 1...5000, using: &random), using: &random)
                if cache.value(forKey: key) == nil { cache.insert(1000, forKey: key) }
            }
        }
        let offer = try #require(manager.worthOffer)
        #expect(
            await supervisor.serve {
                $0.received.contains { if case .worth(let told) = $0 { told.held == offer.held && told.curve.points.count > 1 } else { false } }
            })
        round()
        #expect(cache.heldBytes <= 1 << 20 && cache.heldBytes > 0)
        link.close()
        await until("the share ends with the link") { manager.worthOffer == nil }
        withExtendedLifetime(registration) {}
    }

    @Test func `C43 state is saved on the supervisor's request, and the save is reported`() async throws {
        let supervisor = try Supervisor(directory), manager = ResourceManager(source: ScriptedPressureSource()), store = MemoryStateStore()
        let saves = Mutex(0)
        manager.lifecycle.preserve(
            "state", in: store,
            snapshot: {
                saves.withLock { $0 += 1 }; return [1]
            }, restore: { _ in })
        try await manager.lifecycle.launch()
        let link = try link(manager, supervisor)
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(await supervisor.send(.checkpoint, for: .saved(true)))
        #expect(saves.withLock { $0 } == 1)
        withExtendedLifetime(link) {}
    }

    @Test func `C43 T33 state from background tasks is saved after their end, and readiness is not reported before`() async throws {
        let supervisor = try Supervisor(directory), manager = ResourceManager(source: ScriptedPressureSource()), store = MemoryStateStore()
        let work = Mutex<UInt8>(0)
        manager.lifecycle.preserve("state", in: store, snapshot: { work.withLock { [$0] } }, restore: { _ in })
        try await manager.lifecycle.launch()
        let link = try link(manager, supervisor), task = manager.beginBackgroundTask("flush", onExpiration: { _, _ in })
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(await supervisor.send(.background(deadline: .seconds(5)), for: .state(.background)))
        #expect(manager.lifecycle.state == .background)
        work.withLock { $0 = 7 }
        supervisor.received = []
        task.end()
        #expect(await supervisor.waits(for: .state(.suspendedReady)))
        #expect(supervisor.received.contains(.saved(true)) && !supervisor.received.contains(.saved(false)))
        #expect(try store.read("state")?.last == 7)
        withExtendedLifetime(link) {}
    }

    @Test func `C43 C97 a process counts as saved only once the states of all scenes are saved, too`() async throws {
        let supervisor = try Supervisor(directory), manager = ResourceManager(source: ScriptedPressureSource()), store = MemoryStateStore()
        let isBroken = Mutex(true)
        let scene = manager.lifecycle.connectScene("tenant", reason: .userRequest) { scene in
            scene.preserve(
                in: store,
                snapshot: {
                    if isBroken.withLock({ $0 }) { throw SupervisorLinkTests.DiskFull() }
                    return [7]
                }, restore: { _ in })
        }
        await scene.connected()
        let link = try link(manager, supervisor)
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(await supervisor.send(.background(deadline: .seconds(5)), for: .state(.suspendedReady)))
        #expect(!supervisor.received.contains(.saved(true)) && manager.lifecycle.state == .background)
        #expect(await supervisor.send(.checkpoint, for: .saved(false)))
        isBroken.withLock { $0 = false }
        #expect(await supervisor.send(.checkpoint, for: .saved(true)))
        #expect(try store.read("scene-tenant") == [7])
        withExtendedLifetime(link) {}
    }

    private struct DiskFull: Error {}

    @Test func `C94 T33 background tasks of scenes are reported, and their state is saved`() async throws {
        let supervisor = try Supervisor(directory), manager = ResourceManager(source: ScriptedPressureSource()), store = MemoryStateStore()
        let work = Mutex<UInt8>(0)
        let scene = manager.lifecycle.connectScene("tenant", reason: .userRequest) { scene in
            scene.preserve(in: store, snapshot: { work.withLock { [$0] } }, restore: { _ in })
        }
        await scene.connected()
        let link = try link(manager, supervisor), task = scene.beginBackgroundTask("flush", onExpiration: { _, _ in })
        #expect(await supervisor.waits(for: .state(.foreground)))
        // The link's first messages may be from before the task.
        #expect(await supervisor.waits(for: .tasks(1, until: nil)))
        #expect(await supervisor.send(.background(deadline: .seconds(5)), for: .state(.background)))
        #expect(await supervisor.serve { $0.received.contains { if case .tasks(1, .some(let left)) = $0 { left <= .seconds(30) } else { false } } })
        #expect(!supervisor.received.contains(.state(.suspendedReady)) && !supervisor.received.contains(.saved(true)))
        work.withLock { $0 = 7 }
        supervisor.received = []
        task.end()
        #expect(await supervisor.waits(for: .state(.suspendedReady)))
        #expect(supervisor.received.contains { if case .tasks(0, _) = $0 { true } else { false } })
        #expect(supervisor.received.contains(.saved(true)))
        #expect(try store.read("scene-tenant") == [7])
        withExtendedLifetime(link) {}
    }

    @Test func `C96 a supervisor's request for memory disconnects scenes behind the foreground`() async throws {
        let supervisor = try Supervisor(directory), manager = ResourceManager(source: ScriptedPressureSource()), store = MemoryStateStore()
        // A suspended scene would be reclaimable.
        manager.lifecycle.policy.sceneSuspendsAfter = nil
        let scene = manager.lifecycle.connectScene("tenant", reason: .systemRequest) { scene in
            scene.preserve(in: store, snapshot: { [7] }, restore: { _ in })
            scene.declare { ByteCount.mebibytes(8).bytes }
        }
        await scene.connected()
        let link = try link(manager, supervisor)
        #expect(await supervisor.waits(for: .caches(held: .mebibytes(8), reclaimable: .zero)))
        #expect(await supervisor.send(.release(.mebibytes(8)), for: .caches(held: .zero, reclaimable: .zero)))
        await until("the scene is disconnected") { scene.state == .notRunning }
        #expect(try store.read("scene-tenant") == [7])
        withExtendedLifetime(link) {}
    }

    /// Keeps the memory of `manager` critical for twelve seconds. Returns the outcomes of the ladder's rung `suspend`.
    private func outcomeOfSuspend(_ manager: ResourceManager, _ source: ScriptedPressureSource, _ clock: ManualClock) async -> [ActionReport.Outcome]
    {
        for _ in 0..<13 {
            await source.whileIdle {
                clock.advance(by: .seconds(1))
                source.push(usage: .mebibytes(1004), limit: .gibibytes(1))
            }
            await source.waitUntilIdle()
        }
        return manager.reports.filter { $0.action == .suspend }.map(\.outcome)
    }

    @Test func `a ladder's suspend rung asks the connected supervisor, once per episode`() async throws {
        let supervisor = try Supervisor(directory), source = ScriptedPressureSource(), clock = ManualClock()
        let manager = ResourceManager(source: source, clock: clock)
        let running = Task { try await manager.run() }
        let link = try link(manager, supervisor)
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(await outcomeOfSuspend(manager, source, clock) == [.done])
        #expect(await supervisor.waits(for: .suspend))
        #expect(supervisor.received.count { $0 == .suspend } == 1)
        link.close()
        running.cancel()
        try await running.value
    }

    @Test func `a ladder's suspend rung is refused while a link has no supervisor`() async throws {
        let source = ScriptedPressureSource(), clock = ManualClock()
        let manager = ResourceManager(source: source, clock: clock)
        let running = Task { try await manager.run() }
        let link = try SupervisorLink(manager, path: directory.path + "/nobody", kernel: HostKernel())
        #expect(
            await outcomeOfSuspend(manager, source, clock)
                == [.refused("no supervisor is connected that could suspend the process; it stays quiesced")])
        link.close()
        running.cancel()
        try await running.value
    }

    @Test func `C77 a level from the supervisor is an announced level`() async throws {
        let supervisor = try Supervisor(directory)
        let source = LinuxPressureSource(options: .init(usesTriggers: false), kernel: HostKernel())
        let manager = ResourceManager(source: source)
        let link = try link(manager, supervisor)
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(try source.read(at: .seconds(1)).announced == nil)
        #expect(supervisor.send(.level(.critical)))
        // The announcement ends the wait. Limits and events of the machine may end the wait, too.
        var announced: PressureLevel?
        for turn in 2..<100 where announced == nil {
            source.wait(atMost: .seconds(1))
            announced = try source.read(at: .seconds(turn)).announced
        }
        #expect(announced == .critical && link.status.level == .critical)
        #expect(try source.read(at: .seconds(100)).announced == nil)
        // The supervisor withdraws the level.
        #expect(supervisor.send(.level(.normal)))
        announced = nil
        for turn in 101..<200 where announced == nil {
            source.wait(atMost: .seconds(1))
            announced = try source.read(at: .seconds(turn)).announced
        }
        #expect(announced == .normal && link.status.level == .normal)
    }

    @Test func `C77 without announcements in the source, the manager rehearses the level`() async throws {
        let supervisor = try Supervisor(directory)
        let manager = ResourceManager(source: ScriptedPressureSource())
        let running = Task { try await manager.run() }
        var events = manager.pressureEvents.makeAsyncIterator()
        let link = try link(manager, supervisor)
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(supervisor.send(.level(.warning)))
        #expect(await events.next()?.level == .warning)
        running.cancel()
        try await running.value
        withExtendedLifetime(link) {}
    }

    @Test func `a service is notified before the supervisor ends that service`() async throws {
        let supervisor = try Supervisor(directory), ended = Mutex<Duration?>(nil), parker = Parker()
        let link = try link(ResourceManager(source: ScriptedPressureSource()), supervisor) { grace in
            ended.withLock { $0 = grace }
            parker.unpark()
        }
        #expect(await supervisor.waits(for: .state(.foreground)))
        #expect(supervisor.send(.ending(grace: .seconds(7))))
        #expect(parker.park(atMost: .seconds(60)) && ended.withLock { $0 } == .seconds(7))
        withExtendedLifetime(link) {}
    }

    @Test func `C33 a keep-alive is granted or refused, and requested again by the next connection`() async throws {
        let supervisor = try Supervisor(directory)
        let link = try link(ResourceManager(source: ScriptedPressureSource()), supervisor)
        #expect(await link.setKeepAlive(every: .seconds(599)) == false)
        #expect(await supervisor.waits(for: .state(.foreground)))
        for (interval, isGranted) in [(600, false), (900, true)] {
            async let answer = link.setKeepAlive(every: .seconds(interval))
            #expect(await supervisor.waits(for: .keepAlive(every: .seconds(interval))))
            #expect(await answer == isGranted)
        }
    }

    @Test func `T29 a link outlives a supervisor, and sends the next one the whole state`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        var supervisor: Supervisor? = try Supervisor(directory)
        let link = try link(manager, supervisor!)
        #expect(await supervisor!.waits(for: .state(.foreground)))
        async let granted = link.setKeepAlive(every: .seconds(900))
        #expect(await supervisor!.waits(for: .keepAlive(every: .seconds(900))))
        #expect(await granted)
        for round in 2...4 {
            supervisor = nil
            // The thread that served last may hold the former supervisor, and its socket, for a moment longer.
            await until("the former socket is gone") { access("\(directory.path)/supervisor", F_OK) != 0 }
            supervisor = try Supervisor(directory)
            #expect(await supervisor!.waits(for: .keepAlive(every: .seconds(900))), "round \(round)")
            #expect(supervisor!.received.contains(.state(.foreground)) && link.status.isConnected)
        }
        #expect(link.status.connections == 4)
    }

    @Test func `a granted keep-alive that one supervisor refuses is requested from the next one as well`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        var supervisor: Supervisor? = try Supervisor(directory)
        try await manager.lifecycle.launch()
        let link = try link(manager, supervisor!)
        #expect(await supervisor!.waits(for: .state(.foreground)))
        async let granted = link.setKeepAlive(every: .seconds(900))
        #expect(await supervisor!.waits(for: .keepAlive(every: .seconds(900))))
        #expect(await granted)
        for round in 1...3 {
            supervisor = nil
            await until("the former socket is gone") { access("\(directory.path)/supervisor", F_OK) != 0 }
            supervisor = try Supervisor(directory)
            supervisor!.leastKeepAlive = .seconds(3600)
            #expect(await supervisor!.waits(for: .keepAlive(every: .seconds(900))), "round \(round)")
            // Orders are carried out one after another, so the refusal has come once the next order is answered.
            #expect(await supervisor!.send(.checkpoint, for: .saved(true)))
        }
        withExtendedLifetime(link) {}
    }

    @Test func `C33 a keep-alive that was ended while no supervisor was there is not requested again`() async throws {
        var supervisor: Supervisor? = try Supervisor(directory)
        let link = try link(ResourceManager(source: ScriptedPressureSource()), supervisor!)
        #expect(await supervisor!.waits(for: .state(.foreground)))
        async let granted = link.setKeepAlive(every: .seconds(900))
        #expect(await supervisor!.waits(for: .keepAlive(every: .seconds(900))))
        #expect(await granted)
        supervisor = nil
        await until("the former socket is gone") { access("\(directory.path)/supervisor", F_OK) != 0 }
        #expect(await link.setKeepAlive(every: nil) == false)
        supervisor = try Supervisor(directory)
        #expect(await supervisor!.waits(for: .state(.foreground)))
        async let next = link.setKeepAlive(every: .seconds(1200))
        #expect(await supervisor!.waits(for: .keepAlive(every: .seconds(1200))))
        #expect(await next)
        #expect(!supervisor!.received.contains(.keepAlive(every: .seconds(900))))
    }

    @Test func `a service that a lost supervisor has sent to the background comes back, and one that went by itself stays`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        var supervisor: Supervisor? = try Supervisor(directory)
        try await manager.lifecycle.launch()
        let link = try link(manager, supervisor!)
        #expect(await supervisor!.waits(for: .state(.foreground)))
        #expect(await supervisor!.send(.background(deadline: .seconds(5)), for: .state(.suspendedReady)))
        supervisor = nil
        #expect(await until("the return without an order") { manager.lifecycle.state == .active })
        await until("the former socket is gone") { access("\(directory.path)/supervisor", F_OK) != 0 }
        supervisor = try Supervisor(directory)
        #expect(await supervisor!.waits(for: .state(.foreground)))
        try await manager.lifecycle.enterBackground(cause: .operator)
        #expect(await supervisor!.waits(for: .state(.suspendedReady)))
        supervisor = nil
        await until("the former socket is gone") { access("\(directory.path)/supervisor", F_OK) != 0 }
        supervisor = try Supervisor(directory)
        #expect(await supervisor!.waits(for: .state(.suspendedReady)))
        #expect(manager.lifecycle.state == .background)
        withExtendedLifetime(link) {}
    }

    @Test func `a released link sends bye, and a refused link retries`() async throws {
        let supervisor = try Supervisor(directory)
        do {
            let link = try link(ResourceManager(source: ScriptedPressureSource()), supervisor)
            #expect(await supervisor.waits(for: .state(.foreground)))
            withExtendedLifetime(link) {}
        }
        #expect(await supervisor.serve { $0.closings == [.left] })
        let other = Fixture.Directory()
        let stern = try ChannelServer(directory: other.path) { _, _ in nil }
        let link = try SupervisorLink(
            ResourceManager(source: ScriptedPressureSource()), path: stern.path, kernel: HostKernel(), firstPause: .milliseconds(1))
        while stern.counters.refused < 3 {
            try #require(Fixture.isReadable(stern.file))
            _ = stern.turn(at: .zero)
        }
        #expect(link.status.problem == "the supervisor refused the connection: unknown-process")
    }
}

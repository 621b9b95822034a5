import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// A manager that does not run, with the surroundings and the clock of a test.
struct Surroundings {
    let clock = ManualClock()
    let source = ScriptedPressureSource()
    let manager: ResourceManager

    init() { manager = ResourceManager(source: source, time: clock.timekeeper) }

    var lifecycle: Lifecycle { manager.lifecycle }
    var environment: Environment { manager.lifecycle.environment }

    func set(_ kind: EnvironmentChange.Kind, _ text: String) { source.surroundings.set(kind, .text(text)) }

    /// Runs `resync` beside the test, which moves the clock.
    func resync(within budget: Duration = .seconds(5)) async -> EnvironmentResync { await environment.resync(within: budget) }
}

@Suite(.serialized, .timeLimit(.minutes(5))) struct EnvironmentTests {
    let at = Surroundings()
    let seen = Log<EnvironmentChange>()

    private func change(_ kind: EnvironmentChange.Kind, _ from: String?, _ to: String?, _ count: Int = 1) -> EnvironmentChange {
        EnvironmentChange(kind, from: from.map { .text($0) } ?? .absent, to: to.map { .text($0) } ?? .absent, count: count)
    }

    // MARK: Reading

    @Test func `C58 a posted change waits for a reader, and a reader counts from the request`() async {
        at.lifecycle.post(.credentials("early"))
        let changes = at.lifecycle.readEnvironment()
        at.lifecycle.post(.credentials("tenant-42"))
        at.lifecycle.post(EnvironmentChange(.credentials("tenant-42")))
        at.lifecycle.setLocale("de_DE")
        var reader = changes.makeAsyncIterator()
        #expect(await reader.next() == EnvironmentChange(.credentials("tenant-42"), count: 2))
        #expect(await reader.next() == change(.locale, nil, "de_DE"))
        #expect(at.lifecycle.locale == "de_DE")
    }

    @Test func `C58 C59 each reader gets the net change since the last one taken`() async {
        var quick = at.lifecycle.readEnvironment().makeAsyncIterator(), slow = at.lifecycle.readEnvironment().makeAsyncIterator()
        for name in ["b", "c", "d"] {
            at.lifecycle.post(.custom("leader"), .text(name))
            #expect(await quick.next()?.to == .text(name))
        }
        #expect(await slow.next() == EnvironmentChange(.custom("leader"), from: nil, to: .text("d"), count: 3))
        at.lifecycle.post(.custom("leader"), .text("e"))
        at.lifecycle.post(.custom("leader"), .text("d"))
        at.lifecycle.post(.custom("last"))
        #expect(await slow.next()?.kind == .custom("last"), "there and back is none")
    }

    @Test func `C58 a cancelled reader ends, and a waiting one is woken`() async {
        let changes = at.lifecycle.readEnvironment()
        let reading = Task { [seen] in for await change in changes { seen.add(change) } }
        at.lifecycle.post(.custom("x"))
        await until { seen.all.count == 1 }
        reading.cancel()
        await reading.value
        #expect(seen.all == [EnvironmentChange(.custom("x"))])
    }

    @Test func `C64 no source is watched without a reader, and dropping the reader ends the watch`() async {
        #expect(at.source.surroundings.watched.isEmpty && at.manager.capabilities["environment"] == nil)
        do {
            let changes = at.lifecycle.readEnvironment()
            #expect(at.source.surroundings.watched == [.clock, .timeZone, .day, .locale])
            #expect(at.manager.capabilities["environment"]?.isLive == true)
            withExtendedLifetime(changes) {}
        }
        #expect(at.source.surroundings.watched.isEmpty)
        let registrations = [
            at.lifecycle.watch(file: "/etc/app.yaml"), at.lifecycle.watch(devices: "power_supply"), at.lifecycle.watch(devices: "net"),
            at.lifecycle.onEnvironmentChange("x", .timeZone) { _ in }, at.lifecycle.register(DerivedValue("y", dependsOn: [.locale]) { 1 }),
        ]
        #expect(at.source.surroundings.watched == [.file("/etc/app.yaml"), .power, .device("net"), .timeZone, .locale])
        for _ in 0..<2 { for registration in registrations { registration.cancel() } }
        #expect(at.source.surroundings.watched.isEmpty)
    }

    // MARK: Sources

    @Test func `C66 a file is read once the writer has been quiet, and reported if the content changed`() async {
        at.set(.file("/app"), "old")
        at.lifecycle.watch(file: "/app")
        var reader = at.lifecycle.readEnvironment().makeAsyncIterator()
        for step in 0..<5 {
            at.set(.file("/app"), "half \(step)")
            at.clock.advance(by: .milliseconds(50))
        }
        at.set(.file("/app"), "new")
        at.clock.advance(by: .milliseconds(200))
        #expect(await reader.next() == change(.file("/app"), "old", "new", 6))

        // A file whose writer never stops is read all the same.
        for step in 0..<15 {
            at.set(.file("/app"), "endless \(step)")
            at.clock.advance(by: .milliseconds(100))
        }
        #expect(await reader.next()?.from == .text("new"))
    }

    @Test func `C66 a file that is written all the time is read after ten quiet times`() async {
        at.set(.file("/app"), "old")
        at.lifecycle.watch(file: "/app")
        at.lifecycle.onEnvironmentChange("all") { [seen] in seen.add($0) }
        // The second burst may postpone the reading as often as the first one.
        for (burst, before) in [(1, "old"), (2, "burst 1, step 20")] {
            for step in 1...20 {
                at.set(.file("/app"), "burst \(burst), step \(step)")
                at.clock.advance(by: .milliseconds(50))
                guard step > 18 else { continue }
                await until("all readings have ended") { at.manager.parts.threads.busy == 0 }
                #expect(seen.all.count == (step == 19 ? burst - 1 : burst), "burst \(burst), step \(step)")
            }
            #expect(seen.all.last == change(.file("/app"), before, "burst \(burst), step 20", 20))
        }
    }

    @Test func `C66 a reading between two writes does not shorten the quiet time after the second write`() async {
        at.set(.file("/app"), "old")
        at.lifecycle.watch(file: "/app")
        at.lifecycle.onEnvironmentChange("all") { [seen] in seen.add($0) }
        at.set(.file("/app"), "first")
        _ = await at.resync()
        #expect(seen.all == [change(.file("/app"), "old", "first")])
        at.clock.advance(by: .milliseconds(50))
        at.set(.file("/app"), "half")
        // The quiet time after the first write ends. The second writer has written only half of the file.
        at.clock.advance(by: .milliseconds(50))
        await until("all readings have ended") { at.manager.parts.threads.busy == 0 }
        #expect(seen.all.count == 1)
        at.set(.file("/app"), "second")
        at.clock.advance(by: .milliseconds(200))
        await until("all readings have ended") { at.manager.parts.threads.busy == 0 }
        #expect(seen.all.dropFirst() == [change(.file("/app"), "first", "second", 2)])
    }

    @Test func `C66 a new watch begins with the present value, and a change between two watches is no change`() async {
        at.set(.file("/app"), "old")
        at.lifecycle.watch(file: "/app").cancel()
        at.set(.file("/app"), "between")
        at.lifecycle.watch(file: "/app")
        at.lifecycle.onEnvironmentChange("all") { [seen] in seen.add($0) }
        at.set(.file("/app"), "new")
        at.clock.advance(by: .milliseconds(200))
        await until("all readings have ended") { at.manager.parts.threads.busy == 0 }
        #expect(seen.all == [change(.file("/app"), "between", "new")])
    }

    @Test func `C66 C59 a file that ends with the old content is no change`() async {
        at.set(.file("/app"), "old")
        at.lifecycle.watch(file: "/app")
        var reader = at.lifecycle.readEnvironment().makeAsyncIterator()
        at.set(.file("/app"), "other")
        at.set(.file("/app"), "old")
        at.clock.advance(by: .milliseconds(200))
        _ = await at.resync()
        at.lifecycle.post(.custom("last"))
        #expect(await reader.next()?.kind == .custom("last"))
    }

    @Test func `C66 a momentarily unreadable file is read again later`() async {
        at.set(.file("/app"), "old")
        at.lifecycle.watch(file: "/app")
        var reader = at.lifecycle.readEnvironment().makeAsyncIterator()
        at.source.surroundings.set(.file("/app"), nil)
        at.source.surroundings.setSilent(true)
        at.set(.file("/app"), "new")
        at.source.surroundings.setSilent(false)
        at.clock.advance(by: .milliseconds(200))
        #expect(await reader.next()?.to == .text("new"))
    }

    @Test func `C58 a moved memory limit is reported with the old and the new value`() async throws {
        try await RunningManager.run { running in
            var reader = running.manager.lifecycle.readEnvironment().makeAsyncIterator()
            await running.available(.mebibytes(900))
            let first = await reader.next()
            #expect(first == EnvironmentChange(.limit, from: .absent, to: .size(.gibibytes(1))))
            running.source.push(usage: .mebibytes(100), limit: .mebibytes(512))
            let moved = await reader.next()
            #expect(moved == EnvironmentChange(.limit, from: .size(.gibibytes(1)), to: .size(.mebibytes(512))))
        }
    }

    @Test func `C60 the limit is read again on the way back`() async throws {
        try await RunningManager.run { running in
            let environment = running.manager.lifecycle.environment, seen = Log<EnvironmentChange>()
            await running.available(.mebibytes(900))
            let first = await environment.resync(within: .seconds(5))
            #expect(first.late.isEmpty)
            running.manager.lifecycle.onEnvironmentChange("limit", .limit) { seen.add($0) }
            environment.hold()
            running.source.push(usage: .mebibytes(100), limit: .mebibytes(512))
            running.source.push(usage: .mebibytes(100), limit: .mebibytes(256))
            let second = await environment.resync(within: .seconds(5))
            #expect(second.late.isEmpty)
            #expect(seen.all.map(\.to) == [.size(.mebibytes(256))] && seen.all.first?.from == .size(.gibibytes(1)))
        }
    }

    // MARK: Handlers

    @Test func `C61 a slow handler is named, and the others are notified meanwhile`() async {
        let goOn = Parker(), at = at
        // The other handler's call may still be about to return when the clock moves.
        func slow() -> [HandlerTiming] { at.lifecycle.slowEnvironmentCalls.filter { $0.name == "formatters" } }
        at.lifecycle.onEnvironmentChange("formatters", .timeZone) { [seen] in
            seen.add($0)
            goOn.park()
        }
        at.lifecycle.onEnvironmentChange("other") { [seen] in seen.add($0) }
        at.lifecycle.post(.timeZone, .text("Europe/Berlin"))
        await until { seen.all.count == 2 }
        at.clock.advance(by: .seconds(4))
        #expect(slow().isEmpty)
        at.clock.advance(by: .seconds(2))
        #expect(slow() == [HandlerTiming(name: "formatters", origin: "time zone", took: .seconds(5), isFinished: false)])
        at.lifecycle.post(.timeZone, .text("Europe/Paris"))
        await until { seen.all.count == 3 }
        goOn.unpark()
        goOn.unpark()
        await until { slow().count == 2 }
        #expect(slow().last == HandlerTiming(name: "formatters", origin: "time zone", took: .seconds(6), isFinished: true))
        await until { seen.all.count == 4 }
        goOn.unpark()
    }

    @Test func `C61 T30 frozen time does not count against a handler`() async {
        let goOn = Parker()
        at.lifecycle.onEnvironmentChange("frozen", .locale) { [seen] in
            seen.add($0)
            goOn.park()
            seen.add($0)
        }
        at.lifecycle.setLocale("de_DE")
        await until { seen.all.count == 1 }
        at.clock.freeze(for: .seconds(60))
        // The clock moves while the handler has not returned. Later, time would pass for a call whose end is not noted
        // yet.
        at.clock.advance(by: .seconds(4))
        #expect(at.lifecycle.slowEnvironmentCalls.isEmpty)
        goOn.unpark()
        await until { seen.all.count == 2 }
        #expect(at.lifecycle.slowEnvironmentCalls.isEmpty)
    }

    @Test func `C61 T1 a handler receives the chosen kinds alone, and nothing after a cancel`() async {
        let mine = Log<EnvironmentChange>()
        let registration = at.lifecycle.onEnvironmentChange("mine", .locale, .file("/a")) { mine.add($0) }
        at.lifecycle.onEnvironmentChange("all") { [seen] in seen.add($0) }
        at.lifecycle.setLocale("a")
        at.lifecycle.post(.file("/b"), .text("x"))
        at.lifecycle.post(.file("/a"), .text("y"))
        await until { seen.all.count == 3 && mine.all.count == 2 }
        #expect(Set(mine.all.map(\.kind)) == [.locale, .file("/a")])
        registration.cancel()
        at.lifecycle.setLocale("b")
        await until { seen.all.count == 4 }
        #expect(mine.all.count == 2)
    }

    // MARK: Interceptors

    @Test func `C62 an interceptor sees a change before any reader, and may drop or replace the change`() async {
        at.lifecycle.interceptEnvironmentChanges { change in
            change.kind == .custom("secret") ? nil : change
        }
        let second = at.lifecycle.interceptEnvironmentChanges("rename") { change in
            guard change.kind == .custom("alias") else { return change }
            return EnvironmentChange(.credentials("real"), count: change.count)
        }
        var reader = at.lifecycle.readEnvironment().makeAsyncIterator()
        for name in ["secret", "alias", "plain"] { at.lifecycle.post(.custom(name)) }
        #expect(await reader.next() == EnvironmentChange(.credentials("real")))
        #expect(await reader.next() == EnvironmentChange(.custom("plain")))
        second.cancel()
        at.lifecycle.post(.custom("alias"))
        #expect(await reader.next() == EnvironmentChange(.custom("alias")))
    }

    @Test func `C62 interceptors run in the order of registration, each on what the one before has returned`() async {
        for name in ["first", "second"] {
            at.lifecycle.interceptEnvironmentChanges(name) { change in
                guard case .custom(let text) = change.kind else { return change }
                return EnvironmentChange(.custom("\(text) \(name)"))
            }
        }
        var reader = at.lifecycle.readEnvironment().makeAsyncIterator()
        at.lifecycle.post(.custom("change"))
        #expect(await reader.next()?.kind == .custom("change first second"))
    }

    @Test func `an interceptor that took the whole budget is named, although no alarm went around it`() async {
        let now = Mutex(Duration.zero), time = Timekeeper(elapsed: { now.withLock { $0 } })
        // The thread that calls the alarms never runs.
        let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time)) { _, _ in true }
        let environment = Environment(source: ScriptedPressureSource(), alarms: alarms, threads: HandlerThreads())
        let interceptor = EnvironmentInterceptor("busy") { change in
            let isLong = change.kind == .custom("long")
            now.withLock { $0 += isLong ? Environment.budget : Environment.budget - .nanoseconds(1) }
            return change
        }
        let registration = environment.add(interceptor)
        for name in ["short", "long"] {
            environment.post(EnvironmentChange(.custom(name)))
            await until("the end of the drain") { environment.state.withLock { $0.drainer == nil } }
        }
        let call = EnvironmentCall("busy", .custom("long"), took: Environment.budget, isFinished: true)
        #expect(environment.slowCalls == [call])
        registration.cancel()
    }

    @Test func `C62 T6 a stuck interceptor is named and bypassed`() async {
        let goOn = Parker(), inside = Log<EnvironmentChange>()
        at.lifecycle.interceptEnvironmentChanges("stuck") { change in
            inside.add(change)
            goOn.park()
            return nil
        }
        var reader = at.lifecycle.readEnvironment().makeAsyncIterator()
        at.lifecycle.post(.custom("first"))
        await until { inside.all.count == 1 }
        at.lifecycle.post(.custom("second"))
        at.clock.advance(by: .seconds(6))
        #expect(await reader.next()?.kind == .custom("first"))
        #expect(await reader.next()?.kind == .custom("second"))
        #expect(at.lifecycle.slowEnvironmentCalls == [HandlerTiming(name: "stuck", origin: "first", took: .seconds(5), isFinished: false)])
        goOn.unpark()
        await until { inside.all.count == 1 }
        // The interceptor's late answer does not count. The interceptor is asked again for the next change.
        await until {
            at.lifecycle.post(.custom("third"))
            return inside.all.count == 2
        }
        goOn.unpark()
    }

    // MARK: The way back

    @Test func `C60 between hold and resync no change goes out, and resync returns only when done`() async {
        let goOn = Parker(), began = Log<EnvironmentChange>(), isDone = Switch(), wasDone = Log<Bool>()
        at.set(.timeZone, "Europe/Berlin")
        at.lifecycle.onEnvironmentChange("formatters", .timeZone) { [seen] in
            began.add($0)
            goOn.park()
            wasDone.add(isDone.isOn)
            seen.add($0)
        }
        let changes = at.lifecycle.readEnvironment()
        at.lifecycle.setLocale("en_GB")
        at.environment.hold()
        at.lifecycle.setLocale("de_DE")
        at.source.surroundings.setSilent(true)
        for number in 0..<10_000 { at.set(.timeZone, "zone \(number)") }
        let read = Log<EnvironmentChange>()
        let reading = Task { for await change in changes { read.add(change) } }
        at.clock.advance(by: .seconds(1))
        await until("rest") { changes.reader.isAwaited && at.manager.parts.threads.busy == 0 || !read.all.isEmpty }
        #expect(began.all.isEmpty && read.all.isEmpty, "also no change from before the freeze")

        let resyncing = Task { [at] in
            let result = await at.resync()
            isDone.turnOn()
            return result
        }
        await until { began.all.count == 1 && read.all.count == 2 }
        // No change is held back any more. Only the handler is left to wait for.
        await until { !at.environment.isHeld }
        goOn.unpark()
        let result = await resyncing.value
        #expect(wasDone.all == [false])
        #expect(seen.all == [change(.timeZone, "Europe/Berlin", "zone 9999", 10_000)])
        #expect(read.all == [change(.locale, nil, "de_DE", 2), seen.all[0]])
        #expect(result.late.isEmpty && result.calls.map(\.name) == ["formatters"])
        reading.cancel()
    }

    @Test func `C59 C60 ten thousand changes during a freeze that end at the start value are no change`() async {
        at.set(.file("/app"), "old")
        at.lifecycle.watch(file: "/app")
        at.lifecycle.onEnvironmentChange("all") { [seen] in seen.add($0) }
        at.environment.hold()
        at.source.surroundings.setSilent(true)
        for number in 0..<10_000 { at.set(.file("/app"), number == 9999 ? "old" : "\(number)") }
        let result = await at.resync()
        #expect(result == EnvironmentResync() && seen.all.isEmpty)
    }

    @Test func `C60 T6 resync ends at the budget and names the late handlers`() async {
        let goOn = Parker(), began = Switch()
        at.lifecycle.onEnvironmentChange("stuck", .locale) { _ in
            began.turnOn()
            goOn.park()
        }
        at.lifecycle.onEnvironmentChange("quick", .locale) { [seen] in seen.add($0) }
        at.environment.hold()
        at.lifecycle.setLocale("de_DE")
        async let resyncing = at.resync(within: .seconds(2))
        await until { began.isOn && seen.all.count == 1 && at.environment.state.withLock { $0.observers[1].isIdle } }
        at.clock.advance(by: .seconds(3))
        let result = await resyncing
        #expect(result.late == ["stuck"] && result.calls.map(\.name) == ["stuck", "quick"], "\(result)")
        #expect(result.calls[0].isFinished == false && result.calls[0].took >= .seconds(2))
        #expect(!at.environment.isHeld)
        goOn.unpark()
    }

    @Test func `C60 a second gap during the way back holds back again until the second resync`() async {
        let first = at.environment.hold()
        at.environment.hold()
        at.lifecycle.onEnvironmentChange("all") { [seen] in seen.add($0) }
        at.lifecycle.post(.custom("x"))
        at.environment.release(first)
        #expect(at.environment.isHeld)
        _ = await at.resync()
        #expect(!at.environment.isHeld && seen.all.count == 1)
    }

    @Test func `C60 an interceptor has returned as well when resync returns`() async {
        at.lifecycle.interceptEnvironmentChanges { [seen] change in
            seen.add(change)
            return change
        }
        let notified = Log<EnvironmentChange>()
        at.lifecycle.onEnvironmentChange("all") { notified.add($0) }
        at.environment.hold()
        for number in 0..<100 { at.lifecycle.post(.custom("\(number)")) }
        let result = await at.resync()
        #expect(seen.all.count == 100 && notified.all.count == 100 && result.late.isEmpty)
    }

    @Test func `C58 C59 property: many posters, readers and handlers all agree in the end`() async {
        for seed in seeds(0..<20) {
            let at = Surroundings()
            let kinds: [EnvironmentChange.Kind] = [.custom("a"), .custom("b"), .locale]
            for kind in kinds { at.lifecycle.post(kind, .text("start")) }
            let handled = Mutex<[EnvironmentChange.Kind: EnvironmentValue]>([:])
            let broken = Log<EnvironmentChange>()
            at.lifecycle.onEnvironmentChange("model") { change in
                handled.withLock { known in
                    if change.from == change.to || known[change.kind] ?? .text("start") != change.from { broken.add(change) }
                    known[change.kind] = change.to
                }
            }
            await withTaskGroup(of: Void.self) { group in
                for poster in 0..<4 {
                    group.addTask {
                        var random = SeededGenerator(seed: seed * 10 + UInt64(poster))
                        for step in 0..<200 {
                            at.lifecycle.post(kinds.randomElement(using: &random)!, .text("\(Int.random(in: 0..<4, using: &random))"))
                            if poster == 0, step % 50 == 25 { _ = await at.resync() }
                        }
                    }
                }
            }
            _ = await at.resync()
            #expect(broken.all.isEmpty, "seed \(seed)")
            for kind in kinds { #expect(handled.withLock { $0[kind] } ?? .text("start") == at.environment.known(kind), "seed \(seed)") }
        }
    }
}

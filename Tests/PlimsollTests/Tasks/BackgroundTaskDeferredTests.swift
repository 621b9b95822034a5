import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Work that waits for a better time.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BackgroundTaskDeferredTests {
    struct Broken: Error {}

    let clock = ManualClock()
    let store = MemoryStateStore()
    let manager: ResourceManager
    let runs = Log<String>()

    init() { manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper) }

    private var deferred: DeferredTasks { manager.deferred }

    private func handle(_ id: String) { deferred.handle(id) { [runs] _ in runs.add(id) } }

    private func waitUntilIdle() async {
        await until { deferred.pending.allSatisfy { !$0.isRunning } && !manager.parts.tasks.hasLiveTasks }
    }

    @Test func `a deferred task runs once, not before the earliest time`() async {
        handle("vacuum")
        deferred.schedule("vacuum", earliest: .seconds(60))
        clock.advance(by: .seconds(59))
        #expect(runs.all.isEmpty && deferred.pending.map(\.earliest) == [.seconds(1)])
        clock.advance(by: .seconds(1))
        await until { !runs.all.isEmpty && deferred.pending.isEmpty }
        clock.advance(by: .seconds(120))
        await waitUntilIdle()
        #expect(runs.all == ["vacuum"])
    }

    @Test func `T5 a deferred task waits while the unit is suspended, and runs after the resume`() async {
        handle("vacuum")
        manager.parts.tasks.suspended(true)
        deferred.schedule("vacuum", earliest: .seconds(1))
        clock.advance(by: .seconds(2))
        await waitUntilIdle()
        #expect(runs.all.isEmpty && deferred.pending.map(\.id) == ["vacuum"])
        manager.parts.tasks.suspended(false)
        await until { runs.all == ["vacuum"] && deferred.pending.isEmpty }
    }

    @Test func `a later request replaces the earlier one, and cancel takes the request back`() async {
        handle("vacuum")
        handle("gone")
        deferred.schedule("vacuum", earliest: .seconds(10))
        deferred.schedule("vacuum", earliest: .seconds(100), whenAtMost: .warning)
        deferred.schedule("gone", earliest: .seconds(10))
        deferred.cancel("gone")
        deferred.cancel("gone")
        #expect(deferred.pending.map(\.id) == ["vacuum"] && deferred.pending[0].whenAtMost == .warning)
        clock.advance(by: .seconds(99))
        #expect(runs.all.isEmpty)
        clock.advance(by: .seconds(1))
        await until { !runs.all.isEmpty }
        await waitUntilIdle()
        #expect(runs.all == ["vacuum"])
    }

    @Test func `a request waits for a handler, and a handler for a request`() async {
        deferred.schedule("late")
        #expect(deferred.pending.count == 1)
        handle("late")
        await until { deferred.pending.isEmpty }
        #expect(runs.all == ["late"])
    }

    @Test func `a deferred task begins at the named level or lower, and when the level falls`() async {
        handle("calm")
        handle("tough")
        manager.parts.publish(.critical)
        deferred.schedule("calm")
        deferred.schedule("tough", whenAtMost: .critical)
        await until { !runs.all.isEmpty }
        manager.parts.publish(.warning)
        await waitUntilIdle()
        #expect(runs.all == ["tough"] && deferred.pending.map(\.id) == ["calm"])
        manager.parts.publish(.normal)
        await until { runs.all.count >= 2 }
        #expect(runs.all == ["tough", "calm"])
    }

    @Test func `T5 a deferred task does not begin while the allowance is spent, and does after the return`() async {
        handle("vacuum")
        manager.parts.tasks.enterBackground()
        clock.advance(by: .seconds(30))
        deferred.schedule("vacuum")
        await waitUntilIdle()
        #expect(runs.all.isEmpty && deferred.pending.map(\.attempts) == [0])
        manager.parts.tasks.enterForeground()
        await until { deferred.pending.isEmpty }
        #expect(runs.all == ["vacuum"])
    }

    @Test func `work that expires stays scheduled and is tried again later; work that returned does not`() async {
        let starts = Counter()
        deferred.handle("long") { _ in
            starts.add(1)
            if starts.value == 1 { try await untilCancelled() }
        }
        deferred.schedule("long")
        await until { starts.value != 0 }
        await manager.expired(.pressure)
        await until { deferred.pending.first?.isRunning == false }
        #expect(deferred.pending.map(\.attempts) == [1] && deferred.pending[0].earliest == .seconds(30))
        clock.advance(by: .milliseconds(29_900))
        #expect(starts.value == 1)
        clock.advance(by: .milliseconds(100))
        await until { deferred.pending.isEmpty }
        #expect(starts.value == 2)
    }

    @Test func `work that throws is tried again after twice as long each time, an hour at most`() async {
        let starts = Counter()
        deferred.handle("broken") { _ in
            starts.add(1)
            throw Broken()
        }
        deferred.schedule("broken")
        var waits: [Duration] = []
        for attempt in 1...9 {
            await until { starts.value >= attempt && !deferred.pending[0].isRunning }
            waits.append(deferred.pending[0].earliest)
            clock.advance(by: deferred.pending[0].earliest)
        }
        #expect(waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600].map { .seconds($0) })
        deferred.cancel("broken")
    }

    @Test func `a request made during a run makes another run, not concurrently`() async {
        let inside = Counter(), goOn = Counter(), most = Counter()
        deferred.handle("again") { _ in
            inside.add(1)
            if inside.value > 1 { most.add(1) }
            await until { goOn.value != 0 }
            inside.add(-1)
        }
        deferred.schedule("again")
        await until { inside.value != 0 }
        deferred.schedule("again")
        #expect(deferred.pending.map(\.isRunning) == [true])
        goOn.add(1)
        await until { deferred.pending.isEmpty }
        await waitUntilIdle()
        #expect(most.value == 0)
    }

    @Test func `T30 of many tasks due after a freeze two begin at a time, and one in the background`() async {
        let inside = Counter(), goOn = Counter(), most = Mutex(0)
        for index in 0..<20 {
            deferred.handle("job-\(index)") { _ in
                inside.add(1)
                most.withLock { $0 = max($0, inside.value) }
                await until { goOn.value != 0 }
                inside.add(-1)
            }
            deferred.schedule("job-\(index)", earliest: .seconds(60 + index))
        }
        manager.parts.tasks.enterBackground()
        clock.freeze(for: .seconds(3600))
        await until { inside.value >= 1 }
        #expect(inside.value == 1 && deferred.pending.count { $0.isRunning } == 1)
        manager.parts.tasks.enterForeground()
        await until { inside.value >= 2 }
        #expect(deferred.pending.count { $0.isRunning } == 2)
        goOn.add(1)
        await until { deferred.pending.isEmpty }
        #expect(most.withLock { $0 } == 2)
    }

    @Test func `requests outlive the process, by the time of day`() async {
        #expect(deferred.persist(in: store) == nil)
        deferred.schedule("far", earliest: .seconds(7200))
        deferred.schedule("near", earliest: .seconds(3600), whenAtMost: .warning)
        deferred.schedule("done", earliest: .seconds(1))
        deferred.cancel("done")
        // The process is gone for half an hour.
        clock.freeze(for: .seconds(1800))
        let next = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        next.deferred.schedule("far", earliest: .seconds(10))
        #expect(next.deferred.persist(in: store) == nil)
        let pending = next.deferred.pending
        #expect(pending.map(\.id) == ["far", "near"] && pending.map(\.earliest) == [.seconds(10), .seconds(1800)])
        #expect(pending[1].whenAtMost == .warning)
        next.deferred.handle("near") { [runs] _ in runs.add("near") }
        clock.advance(by: .seconds(1800))
        await until { !runs.all.isEmpty }
        await until { next.deferred.pending.count <= 1 }
        #expect(next.deferred.pending.map(\.id) == ["far"])
    }

    @Test func `a time of day set back makes no request wait longer than planned`() {
        deferred.persist(in: store)
        deferred.schedule("vacuum", earliest: .seconds(3600))
        clock.setWallClock(by: .seconds(-86_400 * 365))
        let back = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        #expect(back.deferred.persist(in: store) == nil && back.deferred.pending.map(\.earliest) == [.seconds(3600)])
        clock.setWallClock(by: .seconds(86_400 * 365 * 2))
        let forth = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        #expect(forth.deferred.persist(in: store) == nil && forth.deferred.pending.map(\.earliest) == [.zero])
    }

    @Test func `a store with foreign content means a clean start with a reason`() throws {
        deferred.persist(in: store)
        deferred.schedule("vacuum", earliest: .seconds(3600))
        let good = try #require(try store.read(StateName.deferred))
        for count in 0..<good.count {
            try store.write(StateName.deferred, Array(good.prefix(count)))
            let manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
            #expect(manager.deferred.persist(in: store)?.contains("plimsoll.deferred was set aside") == true && manager.deferred.pending.isEmpty)
        }
        var random = SeededGenerator(seed: usualSeed(7))
        for _ in 0..<200 {
            var bent = good
            bent[Int.random(in: 0..<good.count, using: &random)] ^= UInt8.random(in: 1...255, using: &random)
            try store.write(StateName.deferred, bent)
            let manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
            #expect(manager.deferred.persist(in: store) != nil && manager.deferred.pending.isEmpty)
            #expect(store.aside.last?.bytes == bent)
        }
    }

    @Test(arguments: [(-1, 0), (0, -1), (0, .min), (.min, 0)] as [(Int64, Int64)])
    func `a store with a negative delay or number of attempts is set aside`(delay: Int64, attempts: Int64) throws {
        var kept = KeptBytes("PLIMSOLL-DEFERRED", version: 1)
        kept.put(1)
        kept.put("nightly".utf8)
        for number: Int64 in [0, delay, 0, attempts] { kept.put(number) }
        try store.write(StateName.deferred, kept.sealed())
        #expect(deferred.persist(in: store)?.contains("negative") == true && deferred.pending.isEmpty)
    }

    @Test func `a request with as many attempts as a number can hold is tried again within an hour`() throws {
        var kept = KeptBytes("PLIMSOLL-DEFERRED", version: 1)
        kept.put(1)
        kept.put("nightly".utf8)
        for number: Int64 in [0, .max, 0, .max] { kept.put(number) }
        let asks = try DeferredQueue.decode(kept.sealed())
        var queue = DeferredQueue()
        queue.takeOver(asks, now: .zero, wall: .zero)
        queue.ended(try #require(queue.inOrder.first), .unfinished, now: .zero, wall: .zero)
        #expect(queue.inOrder.map(\.due) == [.seconds(3600)])
    }

    @Test func `requests stay in the store when the last work ends after the manager is gone`() async {
        let threads = HandlerThreads(most: 1), blockade = Blockade(), goOn = Counter()
        let alarms = Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper))
        let tasks = BackgroundTaskRegistry(time: clock.timekeeper, alarms: alarms, threads: threads)
        defer { tasks.detach() }
        struct Requests: Sendable { weak let all: DeferredTasks? }
        func begin() -> Requests {
            let deferred = DeferredTasks(tasks: tasks, published: PublishedLevel(), time: clock.timekeeper)
            #expect(deferred.persist(in: store) == nil)
            deferred.schedule("tomorrow", earliest: .seconds(86_400))
            deferred.handle("now") { _ in await until { goOn.value != 0 } }
            deferred.schedule("now")
            return Requests(all: deferred)
        }
        let requests = begin(), looks = Counter()
        // Takes the only thread, so that the write waits.
        threads.run { () -> Void in blockade.wait() }
        await until("the thread is taken") { blockade.count == 1 }
        goOn.add(1)
        await until("the write waits") { threads.busy == 2 }
        // A few looks suffice to see the requests go, if the write does not keep them.
        await until("the end of the work") {
            looks.add(1)
            return requests.all == nil || looks.value > 20
        }
        blockade.open()
        await until("the write") { threads.busy == 0 }
        #expect(deferred.persist(in: store) == nil && deferred.pending.map(\.id) == ["tomorrow"])
    }

    @Test func `requests that cannot be read stay in the store, and a later call adopts them`() {
        deferred.persist(in: store)
        deferred.schedule("far", earliest: .seconds(7200))
        let next = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        #expect(next.deferred.persist(in: UnreadableStore(kept: store))?.contains("cannot read") == true)
        next.deferred.schedule("near", earliest: .seconds(3600))
        #expect(next.deferred.persist(in: store) == nil && next.deferred.pending.map(\.id) == ["near", "far"])
    }

    @Test func `a request that is cancelled while the store is read a second time does not come back`() {
        let deferred = self.deferred
        #expect(deferred.persist(in: store) == nil)
        deferred.schedule("far", earliest: .seconds(3600))
        #expect(deferred.persist(in: HookedStore(kept: store, onRead: { deferred.cancel("far") })) == nil)
        #expect(deferred.pending.isEmpty)
        // Lets go of the hook, which refers to the requests.
        #expect(deferred.persist(in: store) == nil && deferred.pending.isEmpty)
        let next = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        #expect(next.deferred.persist(in: store) == nil && next.deferred.pending.isEmpty)
    }

    @Test func `a request whose cancellation could not be written does not come back when the store is set again`() {
        #expect(deferred.persist(in: store) == nil)
        deferred.schedule("far", earliest: .seconds(3600))
        store.fail(with: Broken())
        deferred.cancel("far")
        store.fail(with: nil)
        #expect(deferred.persist(in: store) == nil && deferred.pending.isEmpty)
        let next = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        #expect(next.deferred.persist(in: store) == nil && next.deferred.pending.isEmpty)
    }

    @Test(.needsLinux) func `a request that is being written while the store is set a second time is not the last word`() async {
        let gate = Blockade(), isArmed = Atomic(false), ended = Log<String>(), threads = Log<Int32>()
        let deferred = self.deferred
        let slow = HookedStore(kept: store, onWrite: { if isArmed.exchange(false, ordering: .relaxed) { gate.wait() } })
        #expect(deferred.persist(in: slow) == nil)
        isArmed.store(true, ordering: .relaxed)
        #expect(
            Thread.start("schedule") {
                deferred.schedule("far", earliest: .seconds(3600))
                ended.add("schedule")
            })
        await until("the write") { gate.count == 1 }
        #expect(
            Thread.start("persist") {
                threads.add(threadNumber)
                _ = deferred.persist(in: slow)
                deferred.cancel("far")
                ended.add("persist")
            })
        await until("the wait for the write") {
            !ended.all.isEmpty || threads.all.first.map { isBlocked($0) } ?? false
        }
        gate.open()
        await until("both ends") { ended.all.count == 2 }
        let next = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        #expect(next.deferred.persist(in: store) == nil && next.deferred.pending.isEmpty)
    }

    @Test func `a task that becomes due while the host sleeps begins after the sleep`() async {
        handle("far")
        deferred.schedule("far", earliest: .seconds(3600))
        clock.sleepHost(for: .seconds(3600))
        await until { runs.all == ["far"] && deferred.pending.isEmpty }
    }

    @Test func `a task begins earlier by the time that the host has slept`() async {
        handle("far")
        deferred.schedule("far", earliest: .seconds(3600))
        clock.sleepHost(for: .seconds(1800))
        clock.advance(by: .milliseconds(1_799_900))
        #expect(runs.all.isEmpty && deferred.pending.map(\.isRunning) == [false])
        clock.advance(by: .milliseconds(100))
        await until { runs.all == ["far"] && deferred.pending.isEmpty }
    }

    @Test func `sleeps too short for a gap bring a task forward as well`() async {
        handle("far")
        deferred.schedule("far", earliest: .seconds(60))
        for _ in 0..<10 { clock.sleepHost(for: .milliseconds(900)) }
        deferred.poll()
        clock.advance(by: .seconds(51))
        await until { runs.all == ["far"] && deferred.pending.isEmpty }
    }

    @Test func `an alarm that rings a moment early is set once more`() async {
        handle("vacuum")
        deferred.schedule("vacuum", earliest: .seconds(60))
        // As if the two clocks of the sleep were read at different moments.
        clock.sleepHost(for: .milliseconds(-5))
        clock.advance(by: .seconds(60))
        #expect(runs.all.isEmpty && deferred.pending.map(\.isRunning) == [false])
        clock.advance(by: .milliseconds(100))
        await until { runs.all == ["vacuum"] && deferred.pending.isEmpty }
    }

    @Test func `a store that can't be written to is reported, and the request stands`() async {
        store.fail(with: Broken())
        #expect(deferred.persist(in: store)?.contains("cannot") == true)
        handle("vacuum")
        deferred.schedule("vacuum")
        await until { deferred.pending.isEmpty }
        #expect(runs.all == ["vacuum"])
    }
}

/// A store that writes and cannot read.
struct UnreadableStore: StateStore {
    let kept: MemoryStateStore

    func write(_ name: String, _ bytes: [UInt8]) throws { try kept.write(name, bytes) }
    func read(_ name: String) throws -> [UInt8]? { throw BackgroundTaskDeferredTests.Broken() }
    func remove(_ name: String) throws { try kept.remove(name) }
}

import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// One registry by itself: its counts, its limits, its sweeps, and its reports to others.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BackgroundTaskRegistryTests {
    let clock = ManualClock()
    let alarms: Alarms
    let threads = HandlerThreads()
    let asked = Counter()

    init() { alarms = Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper)) }

    private func registry(capacity: Int = 1 << 20, width: Int = 16) -> BackgroundTaskRegistry {
        BackgroundTaskRegistry(
            time: clock.timekeeper, alarms: alarms, threads: threads, limits: .init(capacity: capacity), width: width)
    }

    /// Begins a task whose handler counts the request, and ends the task if `ends` is true.
    private func begin(_ name: String, in registry: BackgroundTaskRegistry, ends: Bool = false) -> BackgroundTask {
        let handler: @Sendable (BackgroundTask, ExpirationReason) -> Void = { [asked] task, _ in
            asked.add(1)
            if ends { task.end() }
        }
        return registry.begin(name, #fileID, #line, handler: .blocking(handler))
    }

    // MARK: Counts

    @Test func `each way of leaving is counted, and so is each refusal`() {
        let registry = registry(capacity: 5)
        defer { registry.detach() }
        func counts() -> [Int] {
            let tally = registry.tally
            return [tally.count, tally.expiring, Int(tally.ended), Int(tally.expired), Int(tally.givenUp)]
                + [Int(tally.leaked), Int(tally.refused)]
        }
        #expect(counts() == [0, 0, 0, 0, 0, 0, 0])
        var tasks = (0..<5).map { begin("\($0)", in: registry) }
        #expect(begin("too many", in: registry).refusal != nil && counts() == [5, 0, 0, 0, 0, 0, 1])
        tasks[0].end()
        tasks.removeLast()
        #expect(counts() == [3, 0, 2, 0, 0, 1, 1])
        #expect(registry.expire(.operator, within: .seconds(5)) == 3)
        #expect(begin("too late", in: registry).refusal != nil && counts() == [3, 3, 2, 0, 0, 1, 2])
        tasks[1].end()
        tasks[2].end()
        #expect(counts() == [1, 1, 4, 2, 0, 1, 2] && registry.count == 1)
        #expect(registry.giveUpStragglers() == ["3"] && counts() == [0, 0, 5, 2, 1, 1, 2])
        registry.suspended(true)
        #expect(begin("suspended", in: registry).refusal != nil && counts() == [0, 0, 5, 2, 1, 1, 3])
    }

    @Test func `the last 64 dropped tasks are kept`() {
        let registry = registry()
        defer { registry.detach() }
        for number in 0..<70 { _ = begin("\(number)", in: registry) }
        #expect(registry.leaks.map(\.name) == (6..<70).map { "\($0)" })
    }

    @Test func `the status of a task has the age, and progress only once reported`() throws {
        let registry = registry()
        defer { registry.detach() }
        clock.advance(by: .seconds(10))
        let task = begin("work", in: registry)
        clock.advance(by: .seconds(5))
        let fresh = try #require(registry.statuses.first)
        #expect(fresh.age == .seconds(5) && fresh.progress == nil && !fresh.isExpiring && fresh.completed == 0)
        task.progress(completed: 0, total: 1)
        registry.expire(.operator, within: .seconds(5))
        let asked = try #require(registry.statuses.first)
        #expect(asked.progress?.completed == 0 && asked.progress?.total == 1 && asked.isExpiring)
        task.end()
    }

    @Test func `both objects of one task are equal, and those of two tasks are not`() async throws {
        let registry = registry(), given = Mutex<BackgroundTask?>(nil)
        defer { registry.detach() }
        let handler: @Sendable (BackgroundTask, ExpirationReason) -> Void = { task, _ in given.withLock { $0 = task } }
        let task = registry.begin("one", #fileID, #line, handler: .blocking(handler))
        let other = registry.begin("one", #fileID, #line, handler: nil)
        registry.expire(.operator, within: .seconds(5))
        await until("the handler has its object") { given.withLock { $0 } != nil }
        let same = try #require(given.withLock { $0 })
        #expect(same == task && task != other && Set([task, same, other]).count == 2)
        #expect(registry.giveUpStragglers() == ["one", "one"])
    }

    // MARK: Limits

    @Test(arguments: [1, 4]) func `after a lowering tasks begin once enough have ended, on any thread`(width: Int) async {
        let registry = registry(capacity: 9, width: width)
        defer { registry.detach() }
        // Each on a thread of its own, so that several shards have tasks.
        func begin(_ name: String) async -> BackgroundTask {
            await onThread { self.begin(name, in: registry) }
        }
        var running: [BackgroundTask] = []
        for number in 0..<9 { running.append(await begin("\(number)")) }
        registry.setLimits(.init(capacity: 2))
        #expect(running.allSatisfy { $0.refusal == nil } && registry.count == 9)
        for left in (0..<9).reversed() {
            running.removeFirst().end()
            let next = await begin("next")
            #expect((next.refusal == nil) == (left < 2), "\(left) tasks run")
            next.end()
        }
        for number in 0..<2 { running.append(await begin("again \(number)")) }
        #expect(running.allSatisfy { $0.refusal == nil })
        #expect(await begin("too many").refusal != nil)
        registry.setLimits(.init(capacity: 3))
        running.append(await begin("after the raise"))
        #expect(running[2].refusal == nil)
        #expect(await begin("too many").refusal != nil)
        for task in running { task.end() }
        #expect(registry.count == 0)
    }

    @Test func `the limits of a registry are those of the standard policy, and more tasks may begin after a raise`() {
        let limits = BackgroundTaskRegistry.Limits(), standard = PressurePolicy.standard
        #expect(limits.capacity == standard.mostBackgroundTasks && limits.capacity == 1 << 20)
        #expect(limits.allowance == standard.backgroundAllowance && limits.grace == standard.expirationGrace)
        let registry = registry(capacity: 3)
        defer { registry.detach() }
        let three = (0..<4).map { begin("\($0)", in: registry) }
        #expect(three.map(\.isActive) == [true, true, true, false])
        registry.setLimits(.init(capacity: 5))
        let two = (0..<3).map { begin("\($0)", in: registry) }
        #expect(two.map(\.isActive) == [true, true, false] && registry.capacity == 5)
        for task in three + two { task.end() }
    }

    @Test func `the cap holds while many threads take the last places one by one`() async {
        let cap = 200
        for round in 0..<20 {
            let registry = registry(capacity: cap), begun = Log<BackgroundTask>(), done = Counter()
            for _ in 0..<8 {
                let started = Thread.start("begin") {
                    for _ in 0..<100 {
                        let task = registry.begin("one of many", #fileID, #line, handler: nil)
                        if task.refusal == nil { begun.add(task) }
                    }
                    done.add(1)
                }
                #expect(started)
            }
            await until("round \(round): all have begun") { done.value == 8 }
            #expect(registry.count <= cap && registry.count == begun.all.count, "round \(round)")
            for task in begun.all { task.end() }
            #expect(registry.count == 0)
            registry.detach()
        }
    }

    // MARK: Sweeps

    @Test func `a sweep without tasks ends at once and takes no alarm, and one with work handed over waits`() async {
        let registry = registry(), names = Log<[String]>(), release = Counter()
        defer { registry.detach() }
        let none = registry.expire(.operator, within: .seconds(5), done: { names.add($0) })
        #expect(none == 0 && names.all == [[]] && alarms.total == 0 && registry.mayBegin)
        registry.handovers.setSink { _ in await until { release.value != 0 } }
        let task = begin("upload", in: registry)
        task.handOver([1])
        task.end()
        #expect(registry.count == 0 && registry.hasLiveTasks)
        registry.expire(.shutdown, within: .seconds(5), done: { names.add($0) })
        clock.advance(by: .milliseconds(4900))
        #expect(names.all.count == 1)
        clock.advance(by: .milliseconds(100))
        #expect(names.all == [[], ["1 handed over"]])
        release.add(1)
        await until("the answer") { !registry.hasLiveTasks }
    }

    @Test func `a sweep that ends or is hurried leaves no alarm, and tasks are named from the oldest on`() {
        let registry = registry(), names = Log<[String]>()
        defer { registry.detach() }
        let quick = registry.begin("quick", #fileID, #line, handler: nil)
        registry.expire(.pressure, within: .seconds(30), done: { names.add($0) })
        quick.end()
        clock.advance(by: .milliseconds(1))
        #expect(names.all == [[]] && alarms.pending == 0)
        let old = registry.begin("old", #fileID, #line, handler: nil)
        clock.advance(by: .seconds(1))
        let new = registry.begin("new", #fileID, #line, handler: nil)
        registry.expire(.allowance, within: .seconds(30), done: { names.add($0) })
        registry.expire(.shutdown, within: .seconds(5), done: { names.add($0) })
        clock.advance(by: .seconds(5))
        #expect(names.all == [[], ["old", "new"], ["old", "new"]] && !old.isActive && !new.isActive)
        clock.advance(by: .milliseconds(1))
        #expect(alarms.pending == 0)
    }

    @Test func `a sweep that began without tasks has a deadline for tasks that began during the sweep`() {
        let registry = registry(), names = Log<[String]>()
        defer { registry.detach() }
        registry.enterBackground()
        registry.expire(
            .allowance, within: .seconds(5),
            if: { gate in
                gate.sweep = TaskGate.Sweep(number: 7, reason: .allowance, deadline: .seconds(5), askers: 1)
                return true
            })
        registry.enterForeground()
        let late = registry.begin("late", #fileID, #line, handler: nil)
        registry.expire(.shutdown, within: .seconds(60), done: { names.add($0) })
        clock.advance(by: .seconds(5))
        #expect(names.all == [["late"]] && !late.isActive)
    }

    @Test func `a task that ends while tasks are given up ends the sweep once`() async {
        // Many shards, so that giving up takes a while.
        let registry = registry(width: 1024)
        for round in 0..<100 {
            let task = registry.begin("late", #fileID, #line, handler: nil)
            let answers = Counter(), done = Counter(), starts = [Parker(), Parker()]
            registry.expire(.operator, within: .seconds(600), done: { _ in answers.add(1) })
            for (part, start) in starts.enumerated() {
                let started = Thread.start("race") {
                    start.park()
                    if part == 0 { _ = registry.giveUpStragglers() } else { task.end() }
                    done.add(1)
                }
                #expect(started)
            }
            for start in starts { start.unpark() }
            await until("round \(round): both are done") { done.value == 2 }
            #expect(answers.value == 1 && !task.isActive && registry.mayBegin, "round \(round)")
        }
        registry.detach()
    }

    // MARK: Reports to others

    @Test func `a unit is idle only in the background, once per last task, and not while an offer is open`() async {
        let registry = registry(), idle = Counter(), release = Counter()
        defer { registry.detach() }
        registry.listen { $0.whenIdle = { idle.add(1) } }
        let first = registry.begin("first", #fileID, #line, handler: nil)
        registry.expire(.operator, within: .seconds(5))
        first.end()
        registry.enterBackground()
        registry.expire(.operator, within: .seconds(5))
        #expect(idle.value == 0 && registry.mayBegin)
        registry.handovers.setSink { _ in await until { release.value != 0 } }
        let upload = registry.begin("upload", #fileID, #line, handler: nil)
        upload.handOver([1])
        upload.end()
        registry.finishIfDone()
        #expect(idle.value == 0)
        release.add(1)
        await until("the answer") { idle.value == 1 }
        let hung = registry.begin("hung", #fileID, #line, handler: nil)
        registry.expire(.operator, within: .seconds(5))
        #expect(registry.giveUpStragglers() == ["hung"] && idle.value == 2 && !hung.isActive)
    }

    @Test func `the foreground, a renewed allowance and the end of a suspension are told to waiting work`() async {
        let registry = registry(), opened = Counter()
        defer { registry.detach() }
        registry.listen { $0.whenOpened = { opened.add(1) } }
        registry.enterForeground()
        registry.gapEnded(RunningGap(.frozen, .seconds(60)))
        registry.enterBackground()
        registry.gapEnded(RunningGap(.frozen, .seconds(60)))
        #expect(opened.value == 0, "nothing has changed")
        let task = begin("work", in: registry, ends: true)
        clock.advance(by: .seconds(10))
        registry.gapEnded(RunningGap(.frozen, .seconds(4)))
        #expect(opened.value == 1 && registry.allowanceLeft == .seconds(24))
        clock.advance(by: .milliseconds(23_900))
        #expect(asked.value == 0 && registry.mayBegin)
        clock.advance(by: .milliseconds(100))
        await until("the end of the allowance") { asked.value == 1 && !task.isActive && opened.value == 2 }
        #expect(!registry.mayBegin)
        registry.enterForeground()
        registry.enterForeground()
        #expect(opened.value == 3 && registry.mayBegin)
        registry.suspended(true)
        #expect(opened.value == 3)
        registry.suspended(false)
        #expect(opened.value == 4)
        registry.enterBackground()
        registry.enterForeground()
        clock.advance(by: .milliseconds(1))
        #expect(alarms.pending == 0)
    }

    @Test func `a listener that is replaced is released after the lock, so that captured objects may use the registry`() {
        final class Captured: Sendable {
            let registry: BackgroundTaskRegistry, ends: Counter
            init(_ registry: BackgroundTaskRegistry, _ ends: Counter) { (self.registry, self.ends) = (registry, ends) }
            deinit { ends.add(registry.timeIsNeeded == nil ? 1 : 100) }
        }
        let registry = registry(), ends = Counter()
        defer { registry.detach() }
        func setCapturingListener() {
            let captured = Captured(registry, ends)
            registry.listen { $0.whenTimeIsNeeded = { _ in withExtendedLifetime(captured) {} } }
        }
        setCapturingListener()
        #expect(ends.value == 0)
        registry.listen { $0.whenTimeIsNeeded = nil }
        #expect(ends.value == 1)
    }

    @Test func `a shutdown names the eight oldest of the tasks asked to stop, and none if none runs`() {
        for (count, named) in [(0, 0), (1, 1), (8, 8), (10, 8)] {
            let registry = registry(), names = Log<[String]>(), counts = Log<Int>()
            registry.listen { listeners in
                listeners.whenAsked = { some, all in
                    names.add(some)
                    counts.add(all)
                }
            }
            let tasks = (0..<count).map { registry.begin("\($0)", #fileID, #line, handler: nil) }
            registry.close(askingAfter: .zero, within: .seconds(60))
            let oldest = (0..<named).map { "\($0)" }
            #expect(names.all.count == min(count, 1) && names.all.allSatisfy { $0 == oldest }, "\(count)")
            #expect(counts.all.count == min(count, 1) && counts.all.allSatisfy { $0 == count }, "\(count)")
            for task in tasks { task.end() }
            registry.detach()
        }
    }

    @Test func `work that a task hands over as its last act keeps the unit alive at every moment`() async throws {
        // So many shards that a look at all of them outlasts the task, which is in the last one.
        let registry = registry(width: 1 << 14), rounds = Counter()
        defer { registry.detach() }
        registry.handovers.setSink { work in await until { rounds.value > Int(work.bytes[0]) } }
        let last = try #require(registry.shards.last)
        for round in 0..<20 {
            last.addRoom(1)
            let record = BackgroundTaskRecord("last", #fileID, #line, begun: .zero, shard: last, handler: nil)
            #expect(last.begin(record) == nil)
            let task = BackgroundTask(record), start = Parker()
            let ends = PlimsollTests.onThread {
                start.park()
                task.handOver([UInt8(round)])
                task.end()
            }
            let looks = PlimsollTests.onThread {
                start.unpark()
                return registry.hasLiveTasks
            }
            try await ends.value
            let isAlive = try await looks.value
            #expect(isAlive, "round \(round)")
            rounds.add(1)
            await until("the answer") { !registry.hasLiveTasks }
        }
    }

    // MARK: Time of their own

    @Test func `the end of the last task on its own is told once, after the answers to offers`() async {
        for isOffering in [false, true] {
            let registry = registry(), over = Counter(), release = Counter()
            registry.handovers.setSink { _ in await until { release.value != 0 } }
            let tasks = (0..<2).map { registry.begin("\($0)", #fileID, #line, handler: nil) }
            registry.close(askingAfter: .seconds(30), within: .seconds(60))
            let isInOwnTime = registry.gate.withLock { gate in
                gate.ownEnd?.waiting.append({ _ in over.add(1) })
                return gate.ownEnd != nil
            }
            #expect(isInOwnTime)
            tasks[0].end()
            #expect(over.value == 0)
            if isOffering { tasks[1].handOver([1]) }
            tasks[1].end()
            #expect(over.value == (isOffering ? 0 : 1))
            release.add(1)
            await until("the end") { over.value == 1 && !registry.hasLiveTasks }
            registry.finishIfDone()
            registry.endOwnTime()
            #expect(over.value == 1)
            registry.detach()
        }
    }

    @Test func `a caller that waits for tasks in their own time is told the names of those given up after that time`() {
        let registry = registry(), names = Log<[String]>()
        defer { registry.detach() }
        let task = begin("hung", in: registry)
        registry.close(askingAfter: .seconds(30), within: .seconds(60))
        registry.gate.withLock { gate in
            if gate.ownEnd != nil { gate.ownEnd?.waiting.append({ names.add($0) }) }
        }
        clock.advance(by: .milliseconds(29_900))
        #expect(task.timeRemaining == nil)
        clock.advance(by: .milliseconds(100))
        #expect(names.all.isEmpty && task.timeRemaining == .seconds(30))
        #expect(registry.giveUpStragglers() == ["hung"] && names.all == [["hung"]])
    }

    @Test func `a wait that is held up while tasks are asked and given up returns their names`() async throws {
        // Tasks are given up at the end of the shutdown's time for them, or of the wait.
        for (within, end) in [(50, 40), (36, 36)] {
            let registry = registry(), requests = Counter(), blockade = Blockade()
            defer { registry.detach() }
            // Holds the waiting thread at the second request for time, as a service manager does that reads nothing.
            registry.listen { listeners in
                listeners.whenTimeIsNeeded = { _ in
                    requests.add(1)
                    if requests.value == 2 { blockade.wait() }
                }
            }
            let task = begin("hung", in: registry)
            registry.close(askingAfter: .seconds(30), within: .seconds(40))
            let names = PlimsollTests.onThread {
                registry.expireAndWait(.shutdown, within: .seconds(within), isExtended: true, allowsOwnEnd: true)
            }
            await until("the wait") { registry.gate.withLock { $0.ownEnd?.waiting.count } == 1 }
            clock.advance(by: .seconds(within / 2))
            await until("the second request") { blockade.count == 1 }
            clock.advance(by: .seconds(end - within / 2) - .milliseconds(100))
            #expect(task.timeRemaining == .milliseconds(100), "\(within) s")
            clock.advance(by: .milliseconds(100))
            #expect(!task.isActive, "\(within) s")
            blockade.open()
            let given = try await names.value
            #expect(given == ["hung"], "\(within) s")
        }
    }

    @Test func `a wait for tasks that end on their own is over with the last of them, and asks none`() async throws {
        let registry = registry(), task = begin("quick", in: registry)
        defer { registry.detach() }
        registry.close(askingAfter: .seconds(30), within: .seconds(60))
        let names = PlimsollTests.onThread {
            registry.expireAndWait(.shutdown, within: .seconds(58), allowsOwnEnd: true)
        }
        await until("the wait") { registry.gate.withLock { $0.ownEnd?.waiting.count } == 1 }
        task.end()
        let given = try await names.value
        clock.advance(by: .milliseconds(1))
        #expect(given.isEmpty && asked.value == 0 && alarms.pending == 0)
    }

    @Test func `a wait that ends before the tasks' own time, or does not allow that time, asks at once`() async throws {
        clock.advance(by: .seconds(10))
        for (within, allowsOwnEnd) in [(30, true), (20, true), (50, false)] {
            let registry = registry(), before = asked.value
            let task = begin("slow", in: registry, ends: true)
            registry.close(askingAfter: .seconds(30), within: .seconds(60))
            let names = PlimsollTests.onThread {
                registry.expireAndWait(.shutdown, within: .seconds(within), allowsOwnEnd: allowsOwnEnd)
            }
            let given = try await names.value
            #expect(given.isEmpty && asked.value == before + 1 && !task.isActive, "\(within) s")
            registry.detach()
        }
    }

    @Test func `more time is requested neither for no grace nor unless asked for`() async throws {
        for (grace, isExtended) in [(0, true), (1, false)] {
            let registry = registry(), requests = Counter(), ended = Counter()
            registry.listen { $0.whenTimeIsNeeded = { _ in requests.add(1) } }
            let task = registry.begin("hung", #fileID, #line, handler: nil)
            let names = PlimsollTests.onThread {
                defer { ended.add(1) }
                return registry.expireAndWait(.shutdown, within: .seconds(grace), isExtended: isExtended)
            }
            await until("the end of the wait") {
                clock.advance(by: .milliseconds(100))
                return ended.value == 1
            }
            let given = try await names.value
            #expect(given == ["hung"] && requests.value == 0 && !task.isActive, "\(grace) s")
            registry.detach()
        }
    }

    @Test func `a wait whose alarm never comes gives the tasks up a second after the grace`() async throws {
        let silent = SilentClock(), alarms = silent.alarms()
        let registry = BackgroundTaskRegistry(time: silent.time, alarms: alarms, threads: threads)
        defer { registry.detach() }
        let task = registry.begin("hung", #fileID, #line, handler: nil)
        let names = PlimsollTests.onThread { registry.expireAndWait(.shutdown, within: .seconds(10)) }
        await until("the alarm is set") { alarms.pending == 1 }
        silent.now.withLock { $0 = .seconds(11) + .nanoseconds(1) }
        let before = silent.reads.value
        let given = try await names.value
        // Each look at the time takes one reading, after half a second: a wait for longer has many looks.
        #expect(given == ["hung"] && !task.isActive && silent.reads.value - before < 10)
    }

    @Test func `a wait that is over while another thread gives the tasks up returns their names`() async throws {
        let silent = SilentClock(), alarms = silent.alarms()
        let registry = BackgroundTaskRegistry(time: silent.time, alarms: alarms, threads: threads)
        defer { registry.detach() }
        let answers = Log<[String]>(), release = Blockade()
        // Holds the thread that gives the tasks up, before that thread tells the names.
        registry.listen { $0.whenGivenUp = { _, _ in release.wait() } }
        let task = registry.begin("hung", #fileID, #line, handler: nil)
        let waiter = PlimsollTests.onThread { answers.add(registry.expireAndWait(.shutdown, within: .seconds(10))) }
        await until("the alarm is set") { alarms.pending == 1 }
        let other = PlimsollTests.onThread { registry.giveUpStragglers() }
        await until("the other thread is held") { release.count == 1 }
        silent.now.withLock { $0 = .seconds(11) + .nanoseconds(1) }
        let before = silent.reads.value
        // Only the waiting thread reads the time now, once at each look. A wait that does without the names ends at the
        // first look.
        await until("the wait has gone on, or has ended") { silent.reads.value >= before + 3 || !answers.all.isEmpty }
        #expect(answers.all.isEmpty)
        release.open()
        try await waiter.value
        let given = try await other.value
        #expect(answers.all == [["hung"]] && given == ["hung"] && !task.isActive)
    }
}

/// A clock that tells no step, so that no alarm is ever called.
private final class SilentClock: Sendable {
    let now = Mutex(Duration.zero), reads = Counter()

    var time: Timekeeper {
        Timekeeper(
            elapsed: {
                self.reads.add(1)
                return self.now.withLock { $0 }
            }, asleep: { .zero }, onStep: { _ in })
    }

    /// Returns alarms for which the first step of the clock passes for no freeze.
    func alarms() -> Alarms {
        let heartbeat = Heartbeat(time: time), alarms = Alarms(time: time, heartbeat: heartbeat)
        // After the alarms are made. Otherwise a step of the clock passes for a freeze.
        _ = heartbeat.beat(.alarms, next: nil)
        return alarms
    }
}

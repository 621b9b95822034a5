import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Many tasks on many threads, ended, dropped and expired at once.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BackgroundTaskStormTests {
    let manager = ResourceManager(source: ScriptedPressureSource())

    /// The fate of one task, as the test sees the task.
    private final class Fate: Sendable {
        let expired = Counter()
        let token = Mutex<BackgroundTask?>(nil)
    }

    @Test func `T3 a handler may run before begin returns, and ends the given task`() async {
        for _ in 0..<200 {
            let isDone = Counter(), handled = Counter()
            await withTaskGroup(of: Void.self) { group in
                group.addTask {
                    let task = manager.beginBackgroundTask("early") { task, _ in
                        task.end()
                        handled.add(1)
                    }
                    // If the handler needed the token that `begin` returns, nothing would end this task.
                    await until { !task.isActive }
                    isDone.add(task.refusal == nil ? 1 : 2)
                }
                group.addTask {
                    // Expires the task often close to the begin, then until the task has ended.
                    for _ in 0..<100 where isDone.value == 0 {
                        manager.parts.tasks.expire(.operator, within: .seconds(60))
                        await giveWay()
                    }
                    await until {
                        if isDone.value == 0 { manager.parts.tasks.expire(.operator, within: .seconds(60)) }
                        return isDone.value != 0
                    }
                }
            }
            await until { isDone.value != 1 || handled.value != 0 }
        }
        #expect(manager.backgroundTasks.isEmpty)
    }

    @Test func `no task is refused while most places are free, although many threads begin tasks at once`() async {
        let alarms = Alarms(time: .running, heartbeat: Heartbeat(time: .running)), threads = HandlerThreads()
        for round in 0..<100 {
            let registry = BackgroundTaskRegistry(
                time: .running, alarms: alarms, threads: threads, limits: .init(capacity: 32), width: 1)
            let refused = Counter(), done = Counter()
            let starts = (0..<16).map { _ in Parker() }
            for start in starts {
                let started = Thread.start("begin") {
                    start.park()
                    for _ in 0..<50 {
                        let task = registry.begin("short", #fileID, #line, handler: nil)
                        if task.refusal != nil { refused.add(1) }
                        task.end()
                    }
                    done.add(1)
                }
                #expect(started)
            }
            for start in starts { start.unpark() }
            await until("round \(round): all are done") { done.value == starts.count }
            #expect(refused.value == 0 && registry.count == 0, "round \(round)")
            registry.detach()
        }
    }

    @Test func `T4 T5 in storms of begin, end, drop and expire each task has one end, and none is missed`() async {
        let expirations = Counter(), refusals = Counter()
        for seed in seeds(0..<60) {
            var random = SeededGenerator(seed: seed)
            let fates = Log<Fate>(), threads = Int.random(in: 2...6, using: &random), grace = Duration.seconds(60)
            let seeds = (0..<threads).map { _ in random.next() }
            await withTaskGroup(of: Void.self) { group in
                for seed in seeds {
                    group.addTask {
                        var random = SeededGenerator(seed: seed)
                        for _ in 0..<60 {
                            if Int.random(in: 0..<20, using: &random) == 0 {
                                manager.parts.tasks.expire(.operator, within: grace)
                                continue
                            }
                            let fate = Fate()
                            let task = manager.beginBackgroundTask("storm") { task, _ in
                                fate.expired.add(1)
                                task.end()
                                task.end()
                            }
                            guard task.refusal == nil else {
                                #expect(!task.isActive)
                                refusals.add(1)
                                continue
                            }
                            fates.add(fate)
                            switch Int.random(in: 0..<4, using: &random) {
                            case 0: task.end()
                            case 1: break  // Dropped.
                            default: fate.token.withLock { $0 = task }
                            }
                            // Ends a task of another thread.
                            if let other = fates.all.randomElement(using: &random), Bool.random(using: &random) {
                                other.token.withLock { $0 }?.end()
                            }
                        }
                    }
                }
            }
            manager.parts.tasks.expire(.operator, within: grace)
            for fate in fates.all {
                await until { fate.token.withLock({ $0 })?.isActive != true }
            }
            await until { !manager.parts.tasks.hasLiveTasks && !manager.parts.tasks.gate.withLock { $0.sweep != nil } }
            #expect(fates.all.allSatisfy { $0.expired.value <= 1 }, "seed \(seed)")
            for fate in fates.all { expirations.add(fate.expired.value) }
            #expect(manager.backgroundTasks.isEmpty, "seed \(seed)")
        }
        if !hasChosenSeed { #expect(expirations.value > 0, "the property was never exercised") }
    }

    @Test func `T4 a token ended in the handler and on another thread at once waits for neither`() async {
        for _ in 0..<100 {
            let inside = Parker()
            let task = manager.beginBackgroundTask("both") { task, _ in
                task.end()
                inside.unpark()
                task.end()
            }
            await withTaskGroup(of: Void.self) { group in
                group.addTask { _ = await manager.expired(.operator) }
                group.addTask { task.end() }
            }
            #expect(!task.isActive && manager.backgroundTasks.isEmpty)
        }
    }

    @Test func `T5 the cap is exact, and the refusal names the remedy`() {
        for cap in [1, 3, 700] {
            let manager = ResourceManager(source: ScriptedPressureSource(), policy: PressurePolicy(mostBackgroundTasks: cap))
            var tasks = (0..<cap).map { _ in manager.beginBackgroundTask("one of many") { _, _ in } }
            #expect(tasks.allSatisfy(\.isActive) && manager.backgroundTasks.count == cap)
            let more = manager.beginBackgroundTask("one more") { _, _ in }
            #expect(!more.isActive && more.refusal?.contains("\(cap) tasks run at once") == true)
            #expect(more.refusal?.contains("mostBackgroundTasks") == true)
            tasks.removeLast().end()
            let again = manager.beginBackgroundTask("again") { _, _ in }
            #expect(again.isActive)
            for task in tasks + [again] { task.end() }
        }
    }

    @Test func `T5 the cap holds for all threads together, and unused room of one thread goes to another`() async {
        let cap = 4096
        let manager = ResourceManager(source: ScriptedPressureSource(), policy: PressurePolicy(mostBackgroundTasks: cap))
        let admitted = Log<BackgroundTask>()
        for round in 0..<3 {
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<6 {
                    group.addTask {
                        for _ in 0..<1000 {
                            let task = manager.beginBackgroundTask("flood") { _, _ in }
                            if task.refusal == nil { admitted.add(task) }
                        }
                    }
                }
            }
            #expect(manager.parts.tasks.tally.count <= cap)
            // Room that was refused in a race for the last place is free now.
            while case let task = manager.beginBackgroundTask("rest", onExpiration: { _, _ in }), task.refusal == nil { admitted.add(task) }
            #expect(manager.parts.tasks.tally.count == cap, "round \(round)")
            for task in admitted.all { task.end() }
            #expect(manager.parts.tasks.tally.count == 0)
        }
    }

    @Test func `T6 ten thousand handlers run although a hundred block`() async {
        let release = Parker(), ran = Counter(), blocked = Counter()
        let stuck = (0..<100).map { index in
            manager.beginBackgroundTask("stuck-\(index)") { task, _ in
                blocked.add(1)
                release.park()
                release.unpark()
                task.end()
            }
        }
        let quick = (0..<10_000).map { _ in
            manager.beginBackgroundTask("quick") { task, _ in
                ran.add(1)
                task.end()
            }
        }
        #expect(manager.parts.tasks.expire(.pressure, within: .seconds(600)) == 10_100)
        await until { !quick.contains(where: \.isActive) && blocked.value >= 100 }
        #expect(ran.value == 10_000 && stuck.allSatisfy(\.isActive) && manager.backgroundTasks.count == 100)
        release.unpark()
        await until { !stuck.contains(where: \.isActive) }
        await until { manager.parts.tasks.mayBegin }
    }

    @Test func `a task that outlives the manager still ends`() {
        var manager: ResourceManager? = ResourceManager(source: ScriptedPressureSource())
        let task = manager?.beginBackgroundTask("orphan") { _, _ in }
        manager = nil
        #expect(task?.isActive == true && task?.timeRemaining == nil)
        task?.end()
        #expect(task?.isActive == false)
    }

    @Test func `T2 a handler's captured objects are released outside the locks, with any way of ending`() async {
        /// An object whose deinit ends and begins tasks.
        final class Nosy: Sendable {
            let manager: ResourceManager, deaths: Counter
            init(_ manager: ResourceManager, _ deaths: Counter) { (self.manager, self.deaths) = (manager, deaths) }
            deinit {
                _ = manager.backgroundTasks
                manager.beginBackgroundTask("from a deinit") { _, _ in }.end()
                deaths.add(1)
            }
        }
        let deaths = Counter()
        func begin(_ body: @escaping @Sendable (BackgroundTask) -> Void) -> BackgroundTask {
            let nosy = Nosy(manager, deaths)
            return manager.beginBackgroundTask("nosy") { task, _ in withExtendedLifetime(nosy) { body(task) } }
        }
        begin { $0.end() }.end()
        #expect(deaths.value == 1)
        do { _ = begin { $0.end() } }
        #expect(deaths.value == 2)
        let expired = begin { $0.end() }
        await manager.expired(.operator)
        await until { deaths.value >= 3 }
        let straggler = begin { _ in }
        manager.parts.tasks.expire(.operator, within: .seconds(600))
        #expect(manager.parts.tasks.giveUpStragglers() == ["nosy"])
        await until { deaths.value >= 4 }
        withExtendedLifetime((expired, straggler)) {}
    }
}

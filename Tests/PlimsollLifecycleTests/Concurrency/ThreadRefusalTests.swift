import Glibc
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Processes that may start no more threads: RLIMIT_NPROC, pids.max.
@Suite(.serialized, .timeLimit(.minutes(5))) struct ThreadRefusalTests {
    /// Starts threads once `isOpen` is on.
    private final class Starter: Sendable {
        let isOpen = Switch(), refused = Counter(), started = Counter()
        func start(_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
            guard isOpen.isOn else {
                refused.add(1)
                return false
            }
            started.add(1)
            return Thread.start(name, body)
        }
    }

    private let starter = Starter()

    @Test func `handlers are called without a startable thread, and on threads again later`() async {
        let threads = HandlerThreads(startThread: starter.start), done = Counter()
        for _ in 0..<100 {
            threads.run { () -> Void in done.add(1) }
            threads.run { () async -> Void in
                await giveWay()
                done.add(1)
            }
        }
        await until("all handlers are called") { done.value == 200 }
        #expect(starter.refused.value > 0 && starter.started.value == 0)
        await until("all is at rest") { threads.busy == 0 }
        starter.isOpen.turnOn()
        let thread = await withCheckedContinuation { done in threads.run { () -> Void in done.resume(returning: Thread.current) } }
        #expect(starter.started.value > 0 && thread != 0)
    }

    @Test func `T6 a blocking handler does not hold up the others when no thread can be added`() async {
        let threads = HandlerThreads(startThread: starter.start), blockade = Blockade(), done = Counter()
        starter.isOpen.turnOn()
        for _ in 0..<4 { threads.run { () -> Void in blockade.wait() } }
        await until("all threads are taken") { blockade.count == 4 }
        let refusing = HandlerThreads(most: 4, startThread: { _, _ in false })
        for _ in 0..<20 { refusing.run { () -> Void in done.add(1) } }
        await until("the others are called") { done.value == 20 }
        blockade.open()
    }

    @Test func `C26 alarms go off without a startable thread, and on a thread again later`() async {
        let alarms = Alarms(time: .running, heartbeat: Heartbeat(time: .running), startThread: starter.start)
        await withCheckedContinuation { done in alarms.set(.deadline, after: .milliseconds(1)) { done.resume() } }
        await withCheckedContinuation { done in alarms.set(.timer, after: .milliseconds(1)) { done.resume() } }
        #expect(starter.refused.value > 0 && starter.started.value == 0)
        starter.isOpen.turnOn()
        await withCheckedContinuation { done in alarms.set(.deadline, after: .milliseconds(1)) { done.resume() } }
        await until("a thread is started") { starter.started.value > 0 }
    }

    @Test func `T6 calls with a budget end in time where no thread can be started at all`() async {
        let threads = HandlerThreads(startThread: starter.start), blockade = Blockade(), quick = Counter()
        // Other tests may hold all threads of the pool: the time begins once the quick call is made.
        let time = HeldClock { quick.value == 0 }.timekeeper
        let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time), startThread: starter.start)
        let outcomes = await onThread {
            // Opened here: the call holds a thread of the pool, and other tests may hold the other threads.
            defer { blockade.open() }
            return BoundedCalls.run(
                blocking: [{ quick.add(1) }, { blockade.wait() }], within: .seconds(15), alarms: alarms, threads: threads)
        }
        #expect(outcomes == [.done, .late])
    }

    @Test func `a worker refused a thread starts one with the next request, or the next poll`() async {
        let runs = Counter()
        let worker = Worker("test", launch: starter.start) { _ in runs.add(1) }
        worker.start()
        worker.request()
        #expect(starter.refused.value == 2 && runs.value == 0)
        starter.isOpen.turnOn()
        #expect(worker.replaceIfStuck(at: .zero, budget: .seconds(5)) == nil)
        await until("what was asked for before is done") { runs.value == 1 }
        worker.stop()
    }

    @Test func `T6 a worker stuck while no thread could be started is replaced as soon as one can be`() async {
        let blockade = Blockade(), runs = Counter(), refuses = Switch(), starter = starter
        let launch: Thread.Starter = { name, body in refuses.isOn ? starter.start(name, body) : Thread.start(name, body) }
        let worker = Worker("test", launch: launch) { turn in
            runs.add(1)
            if runs.value == 1 { _ = turn.call("stuck", at: .zero) { blockade.wait() } }
        }
        worker.start()
        worker.request()
        await until("it is stuck") { blockade.count == 1 }
        refuses.turnOn()
        #expect(worker.replaceIfStuck(at: .seconds(6), budget: .seconds(5)) == "stuck")
        #expect(starter.refused.value == 1 && runs.value == 1)
        starter.isOpen.turnOn()
        worker.request()
        // The worker serves the request made while it was stuck and the new request, in one run or in two.
        await until("the worker runs again") { runs.value >= 2 }
        blockade.open()
        worker.stop()
    }

    @Test func `purgeables answer without a startable thread, as often as asked`() async {
        // The time stands still: the pool, which makes the calls, may have no free thread for longer than a poll waits.
        let time = Timekeeper(elapsed: { .zero })
        let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time), startThread: starter.start)
        let poll = PurgeablePoll(alarms: alarms, threads: HandlerThreads(startThread: starter.start))
        let manager = ResourceManager(source: ScriptedPressureSource(), time: .running)
        let held = Counter()
        manager.register("held", byteCount: { held.value }, release: { $0 })
        let entries = manager.parts.purgeables.snapshot
        for round in 1...3 * PurgeablePoll.most {
            held.add(1)
            await onThread { poll.ask(entries) }
            #expect(entries[0].answer.withLock { $0?.held } == ByteCount(round))
        }
    }

    /// A part that waits for a deadline, on a thread of its own.
    enum Wait: String, CaseIterable, Codable { case calls, scrub, environment, saving }

    @Test(arguments: Wait.allCases)
    func `T6 C26 a waiter for a deadline makes the alarms' calls where no thread can be started and the pool is taken`(wait: Wait) async {
        await #expect(processExitsWith: .success) { [wait = wait as Wait] in
            let blockade = Blockade(), width = Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))
            // Takes the pool's threads other than the one that runs this test. Nothing here waits for them.
            for _ in 0..<width * 2 { Task { @concurrent in blockade.wait() } }
            blockUntil("the pool is taken", limit: .seconds(10)) { blockade.count >= width - 1 }
            let problems = Log<String?>()
            guard Thread.start("waits", { problems.add(ThreadRefusalTests.problem(of: wait, blockade)) }) else { exit(2) }
            blockUntil("its end", limit: .seconds(10)) { !problems.all.isEmpty }
            exit(problems.all == [nil] ? 0 : 3)
        }
    }

    /// Makes `wait` wait for its deadline while `blockade` holds up the awaited work. Returns the defect of the
    /// outcome; `nil` for none.
    private static func problem(of wait: Wait, _ blockade: Blockade) -> String? {
        let alarms = Alarms(time: .running, heartbeat: Heartbeat(time: .running), startThread: { _, _ in false })
        let none = HandlerThreads(startThread: { _, _ in false }), threads = HandlerThreads(), limit = Duration.milliseconds(50)
        switch wait {
        case .calls:
            let outcomes = BoundedCalls.run(blocking: [{ blockade.wait() }], within: limit, alarms: alarms, threads: none)
            return outcomes == [.late] ? nil : "\(outcomes)"
        case .scrub:
            let set = ScrubSet(alarms: alarms, threads: threads)
            guard let secret = try? SecretTests.secret() else { return "there is no secret" }
            set.secrets.add(secret)
            let inside = Blockade()
            guard Thread.start("inside", { secret.withBytes { _ in inside.wait() } }) else { return "there is no thread" }
            blockUntil("a reader is inside", limit: .seconds(5)) { inside.count == 1 }
            let report = set.run(.background, within: limit)
            return report.inUse.count == 1 ? nil : "\(report)"
        case .environment:
            let resync = Environment(source: ScriptedPressureSource(), alarms: alarms, threads: none).resync(within: limit)
            return resync.late == ["sources"] ? nil : "\(resync)"
        case .saving:
            let snapshot: @Sendable () -> [UInt8] = {
                blockade.wait()
                return []
            }
            let closures = PreservedItem.Closures(snapshot: snapshot, restore: { _, _ in }, apply: nil, reset: nil)
            let item = PreservedItem(name: "stuck", store: ShelfStore(), version: 1, closures: closures, threads: threads)
            _ = item.restore(cleanStartReason: nil)
            let failures = Preservation(alarms: alarms, threads: threads).save([item], within: limit)
            return failures.map(\.name) == ["stuck"] ? nil : "\(failures)"
        }
    }

    @Test func `C26 all calls of the manager still return in a process that may start no more threads`() async {
        await #expect(processExitsWith: .success) {
            // The limit does not apply to root.
            if getuid() == 0 { guard setgid(65534) == 0, setuid(65534) == 0 else { exit(2) } }
            // The cooperative pool has all its threads and starts none later.
            let width = Int(sysconf(Int32(_SC_NPROCESSORS_ONLN))), met = Counter()
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<width {
                    group.addTask {
                        met.add(1)
                        let parker = Parker(), end = ContinuousClock.now + .seconds(2)
                        while met.value < width, ContinuousClock.now < end { parker.park(atMost: .milliseconds(1)) }
                    }
                }
            }
            let manager = ResourceManager(source: ScriptedPressureSource(), time: .running)
            let released = Counter(), saved = Counter()
            manager.register("cache", byteCount: { 1000 }) { (_: Int) in
                released.add(1)
                return 1000
            }
            manager.lifecycle.observe("saver", onBackground: { _ in saved.add(1) })
            manager.lifecycle.policy.backgroundDeadline = .seconds(600)
            // 6 is RLIMIT_NPROC. The Glibc module does not import RLIMIT_NPROC, a macro of an enumeration.
            var none = rlimit(rlim_cur: 0, rlim_max: 0)
            guard setrlimit(__rlimit_resource_t(6), &none) == 0 else { exit(3) }
            guard !Thread.start("never", {}) else { exit(4) }

            let report: ActionReport = await manager.release()
            guard released.value == 1, report.released == ByteCount(1000) else { exit(5) }
            guard (try? await manager.lifecycle.launch()) != nil else { exit(6) }
            let down = try? await manager.lifecycle.enterBackground(cause: .operator)
            guard let down, down.overran.isEmpty, saved.value == 1, manager.lifecycle.state == .background else { exit(7) }
            let task = manager.beginBackgroundTask("stuck") { _, _ in }
            let names = manager.expireBackgroundTasks(.operator, within: .milliseconds(100))
            guard names == ["stuck"], !task.isActive else { exit(8) }
            exit(0)
        }
    }
}

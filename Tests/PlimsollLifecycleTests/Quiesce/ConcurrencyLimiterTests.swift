import CAllocationCounter
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct ConcurrencyLimiterTests {
    let clock = ManualClock()
    let set: QuiesceSet

    init() { set = QuiesceSet(time: clock.timekeeper) }

    private func limiter(_ limit: Int, pausePatience: Duration? = nil, mostWaiting: Int = 1 << 16) -> ConcurrencyLimiter {
        let limiter = ConcurrencyLimiter("render", limit: limit, mostWaiting: mostWaiting, waitingWhilePausedAtMost: pausePatience)
        set.add(limiter)
        return limiter
    }

    /// Starts jobs one after the other, so that they wait in this order. Each job runs until the job's latch is open.
    private func start(_ count: Int, _ limiter: ConcurrencyLimiter, patience: Duration? = nil) async -> [Job] {
        var jobs: [Job] = []
        for number in 0..<count {
            let before = limiter.statistics
            jobs.append(Job(number, limiter, patience))
            await until { limiter.statistics != before }
        }
        return jobs
    }

    @Test func `a limiter runs as many as the limit, then one for each that ends, in the order of arrival`() async throws {
        let limiter = ConcurrencyLimiter("alone", limit: 2)
        let jobs = await start(5, limiter)
        #expect(limiter.statistics == (2, 3, 2, 2, 0, 0))
        for job in jobs {
            #expect(try await job.finish() == job.number)
            #expect(limiter.statistics.admitted == UInt64(min(5, job.number + 3)))
        }
        #expect(limiter.statistics == (0, 0, 2, 5, 0, 0))
        await #expect(throws: Odd.self) { try await limiter.run { throw Odd() } }
        #expect(limiter.statistics.running == 0)
    }

    @Test func `C82 a higher level admits fewer at once, and normal all again; running work goes on`() async throws {
        let limiter = limiter(8)
        let jobs = await start(20, limiter)
        func running(_ level: PressureLevel, _ isQuiescing: Bool) -> (Int, Int) {
            set.setPressure(level, isQuiescing: isQuiescing)
            return (limiter.statistics.limit, limiter.statistics.running)
        }
        #expect(running(.warning, false) == (4, 8))
        for job in jobs[..<4] { #expect(try await job.finish() == job.number) }
        #expect(limiter.statistics.running == 4 && limiter.statistics.admitted == 8)
        #expect(try await jobs[4].finish() == 4)
        #expect(limiter.statistics.running == 4 && limiter.statistics.admitted == 9)
        #expect(running(.critical, false) == (2, 4) && running(.critical, true) == (1, 4))
        for job in jobs[5..<8] { #expect(try await job.finish() == job.number) }
        #expect(limiter.statistics.running == 1 && limiter.statistics.admitted == 9)
        #expect(running(.warning, false) == (4, 4) && running(.normal, false) == (8, 8))
        for job in jobs[8...] { #expect(try await job.finish() == job.number) }
        #expect(limiter.statistics.admitted == 20)
    }

    @Test func `C35 in the background a limiter admits one at a time, or the set number`() {
        let ordinary = limiter(8), wide = ConcurrencyLimiter("wide", limit: 8, inBackground: 3),
            none = ConcurrencyLimiter("none", limit: 8, inBackground: 0)
        set.add(wide)
        set.add(none)
        set.setState(.background)
        #expect([ordinary, wide, none].map(\.statistics.limit) == [1, 3, 0])
        set.setPressure(.critical, isQuiescing: false)
        #expect([ordinary, wide, none].map(\.statistics.limit) == [1, 2, 0])
    }

    @Test func `C54 work waiting in a pause waits on with the setting keep`() async throws {
        let limiter = limiter(1)
        let jobs = await start(3, limiter)
        set.setState(.inactive)
        #expect(try await jobs[0].finish() == 0)
        clock.advance(by: .seconds(3600))
        #expect(limiter.statistics.running == 0 && limiter.statistics.waiting == 2)
        set.setState(.active)
        #expect(try await jobs[1].finish() == 1)
        #expect(try await jobs[2].finish() == 2)
    }

    @Test func `C54 work waiting in a pause, or arriving in one, is refused with the reason under the setting refuse`() async throws {
        let limiter = limiter(1, pausePatience: .zero)
        let jobs = await start(3, limiter)
        set.close()
        #expect(limiter.statistics.waiting == 2, "the way back from a freeze is no pause")
        set.open()
        set.setState(.inactive)
        for job in jobs[1...] { await #expect(throws: AdmissionRefusal(limiter: "render", reason: .paused)) { try await job.finish() } }
        await #expect(throws: AdmissionRefusal(limiter: "render", reason: .paused)) { try await limiter.run {} }
        #expect(try await jobs[0].finish() == 0)
        #expect(limiter.statistics.refused == 3)
        #expect(
            "\(AdmissionRefusal(limiter: "render", reason: .paused))".hasPrefix(
                "limiter \"render\" cannot admit the work because the limiter is paused"))
    }

    @Test func `C54 waiting work may get a time limit, counted only while paused, without freezes`() async throws {
        let limiter = limiter(1, pausePatience: .seconds(10))
        let jobs = await start(2, limiter)
        clock.advance(by: .seconds(60))
        #expect(limiter.statistics.waiting == 1, "no wait expires without a pause")
        set.setState(.inactive)
        clock.advance(by: .seconds(8))
        set.setState(.active)
        clock.advance(by: .seconds(8))
        set.setState(.inactive)
        clock.advance(by: .seconds(8))
        clock.freeze(for: .seconds(60))
        #expect(limiter.statistics.waiting == 1, "each pause counts by itself, by running time")
        let late = await start(1, limiter)
        clock.advance(by: .seconds(3))
        let refusal = AdmissionRefusal(limiter: "render", reason: .pausedTooLong(.seconds(10)))
        await #expect(throws: refusal) { try await jobs[1].finish() }
        #expect(limiter.statistics.waiting == 1 && limiter.statistics.expired == 1)
        clock.advance(by: .seconds(8))
        await #expect(throws: refusal) { try await late[0].finish() }
        #expect(try await jobs[0].finish() == 0)
    }

    @Test func `a full queue refuses with an error that names the bound`() async throws {
        let limiter = limiter(1, mostWaiting: 2)
        let jobs = await start(3, limiter)
        await #expect(throws: AdmissionRefusal(limiter: "render", reason: .queueIsFull(mostWaiting: 2))) { try await limiter.run {} }
        for job in jobs { #expect(try await job.finish() == job.number) }
        #expect(limiter.statistics.refused == 1)
    }

    @Test func `T28 a wait ends at the time limit, and freeing memory waits for no admission`() async throws {
        let limiter = limiter(1)
        let cache = PurgeableCache<Int, [UInt8]>("cache", cost: { $1.count })
        for key in 0..<16 { cache.insert(Array(repeating: 1, count: 4096), forKey: key) }
        let jobs = await start(2, limiter), patient = await start(1, limiter, patience: .seconds(5))
        await #expect(throws: AdmissionRefusal(limiter: "render", reason: .waitedTooLong(.zero))) { try await limiter.run(waitingAtMost: .zero) {} }
        set.setState(.inactive)
        clock.advance(by: .seconds(4))
        clock.freeze(for: .seconds(60))
        #expect(limiter.statistics.waiting == 2)
        #expect(cache.release(.max) > .zero, "a purge needs no admission")
        clock.advance(by: .seconds(2))
        await #expect(throws: AdmissionRefusal(limiter: "render", reason: .waitedTooLong(.seconds(5)))) { try await patient[0].finish() }
        #expect(limiter.statistics.waiting == 1 && limiter.statistics.expired == 1)
        set.setState(.active)
        for job in jobs { #expect(try await job.finish() == job.number) }
    }

    @Test func `T28 a limiter without a set keeps time too, and a waiter keeps waiting when the limiter joins a set`() async throws {
        let limiter = ConcurrencyLimiter("alone", limit: 1)
        let jobs = await start(1, limiter)
        await #expect(throws: AdmissionRefusal.self) { try await limiter.run(waitingAtMost: .milliseconds(1)) {} }
        let patient = await start(1, limiter, patience: .seconds(3600))
        clock.advance(by: .seconds(10_000))
        let registration = set.add(limiter)
        // The time before joining counts, on the machine's clock: seconds on a busy machine.
        clock.advance(by: .seconds(3500))
        #expect(limiter.statistics.waiting == 1)
        clock.advance(by: .seconds(110))
        await #expect(throws: AdmissionRefusal.self) { try await patient[0].finish() }
        registration.cancel()
        #expect(try await jobs[0].finish() == 0)
    }

    @Test func `a pause that begins while a limiter moves to another set lasts by the clock of that set`() async throws {
        let limiter = ConcurrencyLimiter("moving", limit: 1, waitingWhilePausedAtMost: .seconds(10))
        let jobs = await start(2, limiter)
        // The clocks of the two sets differ by far.
        clock.advance(by: .seconds(100))
        let board = QuiesceBoard(), former = ManualClock()
        board.publish(general: .paused, leased: .paused)
        let paused = QuiesceGate(board, alarms: Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper)))
        // The former gate finds the end of a gap, and at that moment the limiter moves. No step of a clock handles the gap.
        let alarms = Alarms(time: ManualClock().timekeeper, heartbeat: Heartbeat(time: former.timekeeper))
        limiter.join(QuiesceGate(alarms: alarms) { [weak limiter] in limiter?.join(paused) })
        former.freeze(for: .seconds(60))
        limiter.poll()
        #expect(limiter.gates.current === paused)
        clock.advance(by: .seconds(9))
        #expect(limiter.statistics.waiting == 1)
        clock.advance(by: .seconds(2))
        try #require(limiter.statistics.waiting == 0)
        await #expect(throws: AdmissionRefusal(limiter: "moving", reason: .pausedTooLong(.seconds(10)))) { try await jobs[1].finish() }
        #expect(try await jobs[0].finish() == 0)
    }

    @Test func `callers that wait in no set share the alarms of the limiter`() async throws {
        let limiter = ConcurrencyLimiter("alone", limit: 1)
        let jobs = await start(1, limiter)
        #expect(limiter.ownAlarms.withLock { $0 } == nil, "no caller waits")
        let first = await start(1, limiter, patience: .seconds(60))
        await until("the alarm is set") { limiter.ownAlarms.withLock { $0 }?.pending == 1 }
        let alarms = try #require(limiter.ownAlarms.withLock { $0 })
        let second = await start(1, limiter, patience: .seconds(60))
        #expect(limiter.ownAlarms.withLock { $0 } === alarms)
        #expect(try await jobs[0].finish() == 0)
        for job in first + second { _ = try await job.finish() }
    }

    @Test func `a cancelled wait ends with CancellationError, and the next waiters move up`() async throws {
        let limiter = limiter(1)
        let jobs = await start(4, limiter)
        jobs[1].task.cancel()
        jobs[2].task.cancel()
        for job in jobs[1...2] { await #expect(throws: CancellationError.self) { try await job.task.value } }
        #expect(limiter.statistics.waiting == 1)
        #expect(try await jobs[0].finish() == 0)
        #expect(try await jobs[3].finish() == 3)
        #expect(limiter.statistics == (0, 0, 1, 2, 0, 0))
        let cancelled = Task {
            await until { Task.isCancelled }
            return try await limiter.run { 5 }
        }
        cancelled.cancel()
        #expect(try await cancelled.value == 5, "there is room: what to do about it is the body's business")
    }

    @Test func `a waiter cancelled during admission does not count as admitted and frees the place`() async throws {
        let limiter = limiter(2), executor = StepExecutor()
        set.setState(.inactive)
        let first = Task(executorPreference: executor) { @concurrent in try await limiter.run {} }
        await until("the first waits") { limiter.statistics.waiting == 1 && executor.isIdle }
        let second = Task { try await limiter.run {} }
        await until("the second waits") { limiter.statistics.waiting == 2 }
        // Both are admitted at once. The first is resumed before the second.
        executor.whenResumed { second.cancel() }
        set.setState(.active)
        try await first.value
        await #expect(throws: CancellationError.self) { try await second.value }
        await until("the first has left the executor") { executor.isIdle }
        #expect(limiter.statistics == (0, 0, 2, 1, 0, 0))
    }

    @Test func `C54 a refusal during a pause differs from a refusal for lack of room`() {
        func isPaused(_ reason: AdmissionRefusal.Reason) -> Bool {
            AdmissionRefusal(limiter: "render", reason: reason).isPaused
        }
        #expect(isPaused(.paused) && isPaused(.pausedTooLong(.seconds(10))))
        #expect(!isPaused(.queueIsFull(mostWaiting: 2)) && !isPaused(.waitedTooLong(.seconds(5))))
    }

    @Test func `a storm of arrivals, cancellations and changes loses no work and runs no more than the limit`() async {
        let seed = newSeed()
        let limiter = ConcurrencyLimiter("storm", limit: 4)
        set.add(limiter)
        let inside = Tally(), begun = Tally(), ended = Tally()
        await withTaskGroup(of: Void.self) { group in
            for number in 0..<2000 {
                group.addTask { [set] in
                    var random = SeededGenerator(seed: seed &+ UInt64(number))
                    let chance = Int.random(in: 0..<10, using: &random), yields = Int.random(in: 0..<4, using: &random)
                    if number % 50 == 0 {
                        set.setPressure([.normal, .warning, .critical][chance % 3], isQuiescing: chance == 9)
                        set.setState(chance % 2 == 0 ? .inactive : .active)
                        set.setState(.active)
                    }
                    let work = Task {
                        try await limiter.run(waitingAtMost: chance == 0 ? .zero : nil) {
                            begun.add(1)
                            inside.add(1)
                            await giveWay(yields)
                            inside.add(-1)
                        }
                    }
                    if chance < 4 {
                        await giveWay(yields)
                        work.cancel()
                    }
                    _ = await work.result
                    ended.add(1)
                }
            }
        }
        let statistics = limiter.statistics
        #expect(ended.count == 2000 && statistics.running == 0 && statistics.waiting == 0, "seed \(seed)")
        #expect((1...4).contains(inside.most) && statistics.admitted == UInt64(begun.count), "seed \(seed)")
    }

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `an immediate admission allocates nothing`() async throws {
        let limiter = limiter(4)
        func work() async throws -> Int { try await limiter.run { 1 } }
        for _ in 0..<100 { _ = try await work() }
        let before = allocation_count()
        var sum = 0
        for _ in 0..<1000 { sum += try await work() }
        #expect(allocation_count() == before && sum == 1000)
    }
}

private struct Odd: Error {}

/// An executor that runs each step of a task on a new thread, and calls a closure when a task is resumed.
private final class StepExecutor: TaskExecutor {
    private let onResume = Mutex<(@Sendable () -> Void)?>(nil)
    private let steps = Counter()

    /// True if each task has ended or is suspended.
    var isIdle: Bool { steps.value == 0 }

    func whenResumed(_ body: @escaping @Sendable () -> Void) { onResume.withLock { $0 = body } }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        steps.add(1)
        let onResume = onResume.withLock { $0 }
        onResume?()
        let started = Thread.start("step") { [self] in
            job.runSynchronously(on: asUnownedTaskExecutor())
            steps.add(-1)
        }
        precondition(started)
    }
}

/// A job that ends when its latch is opened.
private struct Job {
    let number: Int
    let task: Task<Int, any Error>
    private let latch = Latch()

    init(_ number: Int, _ limiter: ConcurrencyLimiter, _ patience: Duration?) {
        self.number = number
        task = Task { [latch] in
            try await limiter.run(waitingAtMost: patience) {
                await latch.wait()
                return number
            }
        }
    }

    func finish() async throws -> Int {
        latch.open()
        return try await task.value
    }
}

import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The allowance of a unit in the background.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BackgroundTaskAllowanceTests {
    let clock = ManualClock()
    let manager: ResourceManager
    var tasks: BackgroundTaskRegistry { manager.parts.tasks }

    init() { manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper) }

    /// Begins a task that notes the reason of the expiration, and ends in the handler if `ends` is true.
    private func begin(_ name: String, _ reasons: Log<ExpirationReason>, ends: Bool = true) -> BackgroundTask {
        manager.beginBackgroundTask(name) { task, reason in
            reasons.add(reason)
            if ends { task.end() }
        }
    }

    @Test func `T5 no task begins while suspended, and the foreground ends the suspension`() {
        let reasons = Log<ExpirationReason>()
        tasks.enterBackground()
        tasks.suspended(true)
        #expect(!begin("frozen", reasons).isActive)
        tasks.enterForeground()
        let task = begin("back", reasons)
        #expect(task.isActive && reasons.all.isEmpty)
        task.end()
    }

    @Test func `C28 a task begun in the foreground has the allowance only in the background`() async {
        let reasons = Log<ExpirationReason>()
        let task = begin("upload", reasons)
        clock.advance(by: .seconds(3600))
        #expect(task.isActive && task.timeRemaining == nil && manager.backgroundTimeRemaining == nil)
        tasks.enterBackground()
        #expect(task.timeRemaining == .seconds(30) && manager.backgroundTimeRemaining == .seconds(30))
        clock.advance(by: .seconds(20))
        #expect(manager.backgroundTimeRemaining == .seconds(10) && reasons.all.isEmpty)
        // The allowance belongs to the unit, so that a task begun later has no more.
        let late = begin("late", reasons)
        #expect(late.timeRemaining == .seconds(10))
        clock.advance(by: .seconds(10))
        await until { !task.isActive && !late.isActive }
        #expect(reasons.all == [.allowance, .allowance] && manager.backgroundTimeRemaining == .zero)
    }

    @Test func `C28 the foreground gives the allowance back whole`() async {
        let reasons = Log<ExpirationReason>()
        let task = begin("upload", reasons)
        for _ in 0..<5 {
            tasks.enterBackground()
            tasks.enterBackground()
            clock.advance(by: .seconds(29))
            tasks.enterForeground()
            tasks.enterForeground()
            clock.advance(by: .seconds(60))
        }
        #expect(task.isActive && reasons.all.isEmpty && task.timeRemaining == nil)
        task.end()
    }

    @Test func `C29 the callback's time and the allowance are two clocks`() async {
        // A live task moves neither clock: the allowance starts when the unit enters the background, at any begin of
        // the task, and other alarms fire in time.
        let reasons = Log<ExpirationReason>(), edge = Counter()
        let task = begin("upload", reasons)
        manager.parts.alarms.set(.deadline, after: .seconds(5)) { edge.add(1) }
        clock.advance(by: .milliseconds(4900))
        #expect(edge.value == 0 && task.timeRemaining == nil)
        clock.advance(by: .milliseconds(100))
        #expect(edge.value == 1 && task.isActive)
        tasks.enterBackground()
        #expect(task.timeRemaining == .seconds(30))
        task.end()
    }

    @Test func `T5 a refused begin gives the reason: allowance spent, suspended, shut down`() async throws {
        let reasons = Log<ExpirationReason>()
        tasks.enterBackground()
        clock.advance(by: .seconds(31))
        let late = begin("late", reasons)
        #expect(!late.isActive && late.timeRemaining == nil && late.refusal?.contains("background time of its unit is spent") == true)
        await #expect(throws: BackgroundTaskRefusal.self) { try await manager.withBackgroundTask("late") { _ in } }
        tasks.suspended(true)
        #expect(begin("frozen", reasons).refusal?.contains("suspended") == true)
        tasks.suspended(false)
        tasks.enterForeground()
        let fine = begin("fine", reasons)
        #expect(fine.refusal == nil && fine.isActive)
        tasks.close()
        #expect(begin("over", reasons).refusal?.contains("shut down") == true && fine.isActive)
        fine.end()
        #expect(reasons.all.isEmpty && manager.backgroundTasks.isEmpty && manager.leakedBackgroundTasks.isEmpty)
    }

    @Test func `T8 T33 a task is honoured up to the bound, then given up by name`() async {
        let reasons = Log<ExpirationReason>()
        let hung = begin("hung", reasons, ends: false), slow = begin("slow", reasons, ends: false)
        tasks.enterBackground()
        clock.advance(by: .seconds(30))
        await until { reasons.all.count >= 2 }
        #expect(hung.timeRemaining == .seconds(5))
        clock.advance(by: .milliseconds(4900))
        #expect(hung.isActive && slow.isActive)
        slow.end()
        clock.advance(by: .milliseconds(100))
        #expect(!hung.isActive && hung.timeRemaining == nil && !tasks.hasLiveTasks)
        #expect(manager.reports.map(\.outcome) == [.overran(["hung"])])
        // A late end ends the old task only.
        tasks.enterForeground()
        let new = begin("hung", reasons)
        hung.end()
        #expect(new.isActive && manager.backgroundTasks.count == 1)
        new.end()
    }

    @Test func `T8 work begun after the return does not end with overrunning tasks`() async {
        let reasons = Log<ExpirationReason>()
        let hung = begin("hung", reasons, ends: false)
        tasks.enterBackground()
        clock.advance(by: .seconds(30))
        await until { !reasons.all.isEmpty }
        tasks.enterForeground()
        let new = begin("new", reasons)
        #expect(new.refusal == nil)
        clock.advance(by: .seconds(10))
        #expect(!hung.isActive && new.isActive && reasons.all == [.allowance])
        new.end()
    }

    @Test func `T30 K35 C33 a freeze in the middle gives the allowance back, and does not eat the grace`() async {
        let reasons = Log<ExpirationReason>()
        let task = begin("upload", reasons, ends: false)
        tasks.enterBackground()
        clock.advance(by: .seconds(10))
        clock.freeze(for: .seconds(3600))
        let left = manager.backgroundTimeRemaining ?? .zero
        #expect(left > .seconds(29) && left <= .seconds(30) && reasons.all.isEmpty)
        clock.advance(by: left)
        await until { !reasons.all.isEmpty }
        clock.advance(by: .seconds(1))
        clock.freeze(for: .seconds(3600))
        #expect(task.isActive && task.timeRemaining ?? .zero > .seconds(3.5))
        clock.advance(by: .seconds(5))
        #expect(!task.isActive)
    }

    @Test func `a host that sleeps stops the clock of the allowance`() async {
        let task = begin("upload", Log())
        tasks.enterBackground()
        clock.sleepHost(for: .seconds(3600))
        #expect(task.isActive && manager.backgroundTimeRemaining == .seconds(30))
        task.end()
    }

    @Test func `the end of the last task is reported once in the background, and never in the foreground`() async {
        let idle = Counter()
        tasks.listen { $0.whenIdle = { idle.add(1) } }
        let first = begin("first", Log())
        first.end()
        tasks.enterBackground()
        #expect(idle.value == 0 && !tasks.hasLiveTasks)
        let two = [begin("a", Log()), begin("b", Log())]
        #expect(tasks.hasLiveTasks)
        two[0].end()
        #expect(idle.value == 0)
        two[1].end()
        two[1].end()
        #expect(idle.value == 1 && !tasks.hasLiveTasks)
        tasks.finishIfDone()
        #expect(idle.value == 1)
        begin("c", Log()).end()
        #expect(idle.value == 2)
        tasks.enterForeground()
        begin("d", Log()).end()
        #expect(idle.value == 2)
    }

    @Test func `a sweep whose condition does not hold asks no task`() {
        let reasons = Log<ExpirationReason>(), task = begin("upload", reasons)
        let asked = tasks.expire(.allowance, within: .seconds(5), if: { _ in false })
        #expect(asked == 0 && task.isActive && reasons.all.isEmpty && !tasks.isExpiring && tasks.mayBegin)
        task.end()
    }

    @Test func `each unit has a separate allowance`() async {
        let scene = BackgroundTaskRegistry(
            time: clock.timekeeper, alarms: manager.parts.alarms, threads: manager.parts.threads, limits: .init(allowance: .seconds(10)), width: 1)
        let reasons = Log<ExpirationReason>()
        let mine = begin("process", reasons)
        let theirs = scene.begin("scene", #fileID, #line, handler: .blocking { task, _ in task.end() })
        scene.enterBackground()
        clock.advance(by: .seconds(10))
        await until { !theirs.isActive }
        #expect(mine.isActive && reasons.all.isEmpty && manager.backgroundTimeRemaining == nil)
        mine.end()
    }

    @Test func `a policy sets the allowance and the grace`() async {
        let manager = ResourceManager(
            source: ScriptedPressureSource(), policy: PressurePolicy(backgroundAllowance: .seconds(7), expirationGrace: .seconds(2)),
            time: clock.timekeeper)
        let asked = Counter()
        let task = manager.beginBackgroundTask("short") { _, _ in asked.add(1) }
        manager.parts.tasks.enterBackground()
        #expect(manager.backgroundTimeRemaining == .seconds(7))
        clock.advance(by: .seconds(7))
        await until { asked.value != 0 }
        #expect(task.timeRemaining == .seconds(2))
        clock.advance(by: .seconds(2))
        #expect(!task.isActive)
    }
}

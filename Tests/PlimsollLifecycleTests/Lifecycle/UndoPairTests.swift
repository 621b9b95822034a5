import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// An action and its inverse, and the reports of many requests.
@Suite(.serialized, .timeLimit(.minutes(5))) struct UndoPairTests {
    private struct Broken: Error {}

    private let calls = Log<String>()
    private let broken = Log<String>()
    private let stage = Stage()

    private func context(_ sequence: UInt64) -> LifecycleContext {
        let transition = LifecycleTransition(from: .active, to: .inactive, cause: .operator, sequence: sequence, at: .zero)
        return LifecycleContext(transition, deadline: .zero, heartbeat: Heartbeat(time: ManualClock().timekeeper))
    }

    /// A pair that logs each call, and throws in the step that `broken` names last.
    private func pair(isDone: Bool = false) -> UndoPair {
        func step(_ name: String) -> UndoPair.Step {
            return { [calls, broken] context in
                calls.add("\(name) \(context.sequence)")
                if broken.all.last == name { throw Broken() }
            }
        }
        return UndoPair(step("action"), step("inverse"), isDone: isDone)
    }

    @Test func `the inverse runs only after the action was done, and neither runs twice`() async throws {
        let pair = pair()
        for (sequence, isWanted) in [false, true, true, false, false, true].enumerated() {
            try await pair.move(to: isWanted, context(UInt64(sequence)))
        }
        #expect(calls.all == ["action 1", "inverse 3", "action 5"])
    }

    @Test func `a pair may begin as done, or be taken as done or undone without a call`() async throws {
        let done = pair(isDone: true), assumed = pair()
        try await done.move(to: true, context(1))
        try await done.move(to: false, context(2))
        assumed.assume(isDone: true)
        try await assumed.move(to: false, context(3))
        assumed.assume(isDone: true)
        assumed.assume(isDone: false)
        try await assumed.move(to: false, context(4))
        #expect(calls.all == ["inverse 2", "inverse 3"])
    }

    @Test func `an action that throws counts as not done, and an inverse that throws as undone`() async throws {
        let pair = pair()
        broken.add("action")
        await #expect(throws: Broken.self) { try await pair.move(to: true, context(1)) }
        try await pair.move(to: false, context(2))
        broken.add("inverse")
        try await pair.move(to: true, context(3))
        await #expect(throws: Broken.self) { try await pair.move(to: false, context(4)) }
        try await pair.move(to: false, context(5))
        try await pair.move(to: true, context(6))
        #expect(calls.all == ["action 1", "action 3", "inverse 4", "action 6"])
    }

    @Test(arguments: [false, true])
    func `an action under way is undone once it returns if that was requested meanwhile, and not by assumption`(isUndone: Bool)
        async throws
    {
        let latch = Latch(), calls = calls
        let pair = UndoPair(
            { context in
                calls.add("action \(context.sequence)")
                await latch.wait()
            }, { context in calls.add("inverse \(context.sequence)") }, isDone: false)
        let first = context(1), second = context(2)
        let task = Task { try await pair.move(to: true, first) }
        await until("the action is under way") { calls.all == ["action 1"] }
        if isUndone { try await pair.move(to: false, second) } else { pair.assume(isDone: false) }
        #expect(calls.all.count == 1)
        latch.open()
        try await task.value
        #expect(calls.all == (isUndone ? ["action 1", "inverse 2"] : ["action 1"]))
        try await pair.move(to: false, context(3))
        #expect(calls.all == ["action 1", isUndone ? "inverse 2" : "inverse 3"])
    }

    @Test func `C6 T38 an action done after an inverse that failed late counts as done, and is undone once`() async throws {
        let latch = Latch(), calls = calls
        let pair = UndoPair(
            { context in calls.add("action \(context.sequence)") },
            { context in
                calls.add("inverse \(context.sequence)")
                await latch.wait()
                if context.sequence == 1 { throw Broken() }
            }, isDone: true)
        let first = context(1)
        let task = Task { try await pair.move(to: false, first) }
        await until("the inverse is under way") { calls.all == ["inverse 1"] }
        // Left to the task that runs the inverse.
        await #expect(throws: LifecycleError.self) { try await pair.move(to: true, context(2)) }
        latch.open()
        await #expect(throws: Broken.self) { try await task.value }
        try await pair.move(to: true, context(3))
        try await pair.move(to: false, context(4))
        #expect(calls.all == ["inverse 1", "action 2", "inverse 4"])
    }

    @Test func `a call that comes after one of a later step changes nothing`() async throws {
        let pair = pair(isDone: true)
        try await pair.move(to: true, context(2))
        try await pair.move(to: false, context(1))
        #expect(calls.all.isEmpty)
        try await pair.move(to: false, context(3))
        #expect(calls.all == ["inverse 3"])
    }

    @Test func `an inverse that a hanging one holds up until the next way down is left out`() async throws {
        // In less time than after which a handler that hangs lets others pass.
        let stage = Stage(LifecyclePolicy(backgroundDeadline: .milliseconds(100)))
        let release = Blockade(), lifecycle = stage.lifecycle, threads = stage.manager.parts.threads
        stage.observe("a")
        // Undone first.
        lifecycle.observe("hanging", onForeground: { _ in release.wait() })
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .operator)
        let way = Task { try await lifecycle.enterForeground(cause: .operator) }
        await until("only the handler runs") { release.count == 1 && threads.busy == 1 }
        stage.clock.advance(by: .milliseconds(100))
        let back = try await way.value
        #expect(back.overran.map(\.name) == ["hanging"] && back.unreached == ["a"], "\(back)")
        try await lifecycle.enterBackground(cause: .operator)
        release.open()
        await until("all handlers have returned") { threads.busy == 0 }
        #expect(lifecycle.state == .background && !stage.log.all.contains("a foreground"), "\(stage.log.all)")
        try await lifecycle.enterForeground(cause: .operator)
        #expect(stage.log.all.suffix(2) == ["a foreground", "a active"])
    }

    @Test func `a way into the background does not count while a handler of an earlier way still runs`() async throws {
        let release = Blockade(), lifecycle = stage.lifecycle
        lifecycle.observe("hanging", onBackground: { _ in release.wait() })
        try await lifecycle.launch()
        _ = try await stage.whileTimePasses(beside: release) { try await lifecycle.enterBackground(cause: .operator) }
        #expect(lifecycle.arrival == false)
        try await lifecycle.enterForeground(cause: .operator)
        let again = try await lifecycle.enterBackground(cause: .operator)
        #expect(again.failures.contains { $0.hasPrefix("hanging: ") } && lifecycle.arrival == false, "\(again)")
        release.open()
    }

    @Test func `a pair is empty without an action and an inverse`() {
        let step: UndoPair.Step = { _ in }
        for (action, inverse, isEmpty) in [(nil, nil, true), (step, nil, false), (nil, step, false), (step, step, false)]
            as [(UndoPair.Step?, UndoPair.Step?, Bool)]
        {
            #expect(UndoPair(action, inverse, isDone: false).isEmpty == isEmpty)
        }
    }

    @Test func `the reports of the last 64 requests are kept`() async throws {
        let lifecycle = stage.lifecycle
        try await lifecycle.launch()
        for _ in 0..<35 {
            try await lifecycle.enterBackground(cause: .operator)
            try await lifecycle.enterForeground(cause: .operator)
        }
        #expect(lifecycle.reports.count == 64 && lifecycle.state == .active)
    }
}

import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The interface between a manager and its parts, used like code of another author.
@Suite(.timeLimit(.minutes(5))) struct ManagerPartTests {
    private final class Recorder: ManagerPart {
        let calls = Log<String>()
        var canQuiesce: Bool { true }
        var signals: [Capabilities.Signal] { [.init("recorder", isLive: true, "for a test")] }

        func joined() { calls.add("joined") }
        func prepare() async { calls.add("prepare") }
        func admit(at level: PressureLevel, isQuiescing: Bool) { calls.add("admit \(level)\(isQuiescing ? ", quiescing" : "")") }
        func loopEnded() { calls.add("loop ended") }
        func refuseWork() { calls.add("refuse work") }
        func finish(_ end: ManagerEnd) async -> [String] {
            calls.add("finish \(end.isForPressure ? "pressure" : "shutdown")")
            await end.waitForSaves(end.budget)
            calls.add("finished")
            return ["slow handler"]
        }
        func describe(in status: inout ManagerStatus) { status.lifecycle.state = "recorded" }
    }

    private static func managed(
        _ policy: PressurePolicy = .standard, exit: @escaping @Sendable (Int32, String) -> Void = { _, _ in }
    ) -> (ResourceManager, ScriptedPressureSource, ManualClock) {
        let source = ScriptedPressureSource(), clock = ManualClock()
        return (ResourceManager(source: source, policy: policy, time: clock.timekeeper, exit: exit), source, clock)
    }

    @Test func `a part is prepared, follows the level, refuses work and finishes, in that order`() async throws {
        let (manager, source, clock) = Self.managed()
        let part = manager.part { Recorder() }
        let run = Task { try await manager.run() }
        await until { part.calls.all.contains("prepare") }
        source.push(usage: .mebibytes(1000), limit: .gibibytes(1))
        await until { part.calls.all.contains("admit critical, quiescing") }
        clock.advance(by: .seconds(5))
        source.push(usage: .mebibytes(100), limit: .gibibytes(1))
        await until { part.calls.all.last == "admit normal" }
        manager.beginShutdown(within: .seconds(1))
        run.cancel()
        try await run.value
        let calls = part.calls.all
        #expect(calls.prefix(2) == ["joined", "prepare"])
        #expect(calls.filter { !$0.hasPrefix("admit") } == ["joined", "prepare", "refuse work", "loop ended", "finish shutdown", "finished"])
        #expect(manager.shutdownReport?.stragglers == ["slow handler"])
        #expect(manager.capabilities["recorder"]?.isLive == true && manager.status.lifecycle.state == "recorded")
    }

    /// A part whose admission takes as long as `onAdmit`.
    private final class Slow: ManagerPart {
        private let onAdmit: @Sendable (PressureLevel) -> Void

        init(onAdmit: @escaping @Sendable (PressureLevel) -> Void) { self.onAdmit = onAdmit }
        func admit(at level: PressureLevel, isQuiescing: Bool) { onAdmit(level) }
    }

    @Test func `a thread that was slow in one part brings no old level to the parts behind`() {
        let (manager, _, clock) = Self.managed()
        let admission = manager.parts.admission, time = clock.timekeeper
        _ = manager.part {
            Slow { level in
                guard level == .critical else { return }
                // Another thread has taken over, and brings the recovery.
                _ = admission.post(.normal, isQuiescing: false)
                _ = inTurn { admission.apply($0, time: time) }
            }
        }
        let behind = manager.part { Recorder() }
        _ = admission.post(.critical, isQuiescing: true)
        _ = inTurn { admission.apply($0, time: time) }
        #expect(behind.calls.all == ["joined", "admit normal"])
        withExtendedLifetime(manager) {}
    }

    @Test func `a part that joins a running manager is prepared at once`() async throws {
        let (manager, _, _) = Self.managed()
        let run = Task { try await manager.run() }
        await withCheckedContinuation { begun in manager.whenFirstTurnIsOver { begun.resume() } }
        let part = manager.part { Recorder() }
        await until { part.calls.all == ["joined", "prepare"] }
        run.cancel()
        try await run.value
    }

    @Test func `many threads that join a part at once receive the same one, which joins once`() async {
        let (manager, _, _) = Self.managed()
        let parts = await withTaskGroup(of: Recorder.self) { group in
            for _ in 0..<16 { group.addTask { manager.part { Recorder() } } }
            return await group.reduce(into: [Recorder]()) { $0.append($1) }
        }
        #expect(parts.allSatisfy { $0 === parts[0] } && parts[0].calls.all == ["joined"])
    }

    @Test func `C22 under pressure a part finishes while saves run, and can wait for them`() async throws {
        let ladder = EscalationLadder.standard.terminating(after: .seconds(1), grace: .seconds(5))
        let (manager, source, clock) = Self.managed(PressurePolicy(ladder: ladder)) { _, _ in }
        let part = manager.part { Recorder() }, save = Blockade()
        manager.beforeTermination("rows") { _ in save.wait() }
        let run = Task { try await manager.run() }
        await until { part.calls.all.contains("prepare") }
        await until {
            // Time stands still once the end has begun: the grace does not pass before the threads of a busy machine run.
            if !manager.parts.inbox.isStopped {
                clock.advance(by: .milliseconds(100))
                source.push(usage: .mebibytes(1023), limit: .gibibytes(1))
            }
            return part.calls.all.contains("finish pressure") && save.count == 1
        }
        #expect(!part.calls.all.contains("finished"))
        save.open()
        await until { part.calls.all.contains("finished") }
        try await run.value
    }

    @Test func `C22 C28 without a life cycle a process that ends under pressure asks its background tasks to stop`() async throws {
        let exits = Counter(), asked = Log<ExpirationReason>(), order = Log<String>()
        let ladder = try EscalationLadder([Rung(at: .critical, after: .seconds(1), .terminate(grace: .seconds(60)))])
        let (manager, source, clock) = Self.managed(PressurePolicy(ladder: ladder)) { _, _ in
            order.add("exit")
            exits.add(1)
        }
        let task = manager.beginBackgroundTask("export") { task, reason in
            asked.add(reason)
            order.add("asked")
            task.end()
        }
        let run = Task { try await manager.run() }
        await until {
            // Time stands still once the end has begun: the grace does not pass before the threads of a busy machine run.
            if !manager.parts.inbox.isStopped {
                clock.advance(by: .milliseconds(100))
                source.push(usage: .mebibytes(1023), limit: .gibibytes(1))
            }
            return exits.value == 1
        }
        #expect(asked.all == [.shutdown] && order.all == ["asked", "exit"] && !task.isActive)
        try await run.value
    }

    @Test func `T30 without a life cycle timers fire again after a gap`() async {
        let (manager, _, clock) = Self.managed()
        let fired = Counter()
        manager.parts.alarms.set(.timer, after: .seconds(1)) { fired.add(1) }
        manager.parts.alarms.noticed(RunningGap(.frozen, .seconds(60)))
        clock.advance(by: .seconds(2))
        await until { fired.value == 1 }
    }

    @Test(arguments: [false, true])
    func `a report reaches the listeners without a turn of the loop`(isOfTasks: Bool) async {
        let (manager, _, _) = Self.managed(), parts = manager.parts, reports = Log<ActionReport>()
        manager.onReport { reports.add($0) }
        parts.deliveryWorker.start()
        if isOfTasks {
            let task = parts.tasks.begin("stuck", #fileID, #line, handler: nil)
            #expect(parts.tasks.expire(.allowance, within: .seconds(5)) == 1)
            #expect(parts.tasks.giveUpStragglers() == ["stuck"] && !task.isActive)
        } else {
            parts.report(ActionReport(eventID: 0, action: .warn, level: .normal, evidence: [], began: .zero))
        }
        await until("the report") { reports.all.count == 1 }
        let expected: PressureAction = isOfTasks ? .expireBackgroundTasks(grace: .zero) : .warn
        #expect(reports.all.map(\.action) == [expected])
        parts.deliveryWorker.stop()
    }

    private final class Tagged<Tag>: ManagerPart {
        let calls = Counter()
        func loopEnded() { calls.add(1) }
    }

    @Test func `every part is called, and a type joins once`() {
        let joined = JoinedParts()
        let parts = (
            joined.part { Tagged<Int>() }, joined.part { Tagged<Bool>() }, joined.part { Tagged<String>() },
            joined.part { Tagged<Int>() }
        )
        #expect(parts.0.joinTime == .early && parts.3.joinTime == .known && parts.0.part === parts.3.part)
        joined.forEach { $0.loopEnded() }
        #expect(parts.0.part.calls.value == 1 && parts.1.part.calls.value == 1 && parts.2.part.calls.value == 1)
        #expect(joined.beginRun().count == 3 && joined.part { Tagged<Double>() }.joinTime == .late)
    }
}

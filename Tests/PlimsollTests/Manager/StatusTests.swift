import Foundation
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The status that a manager reports.
@Suite(.serialized, .timeLimit(.minutes(5))) struct StatusTests {
    private func manager(_ clock: ManualClock = ManualClock()) -> ResourceManager {
        ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
    }

    @Test func `control characters are not printed, and long text is cut`() {
        #expect(printable("a\u{1B}[2J\u{7F}\u{9F}\u{A0}~ é") == "a\u{FFFD}[2J\u{FFFD}\u{FFFD}\u{A0}~ é")
        #expect(printable("\u{1F} abc", atMost: 3) == "\u{FFFD} a" && printable("abc", atMost: 3) == "abc" && printable("") == "")
    }

    @Test(arguments: [
        ("", "", 0), ("", "abc", 3), ("abc", "", 3), ("memory", "memory", 0), ("memory", "memry", 1), ("memory", "memoory", 1),
        ("memory", "nemory", 1), ("memory", "meomry", 1), ("ab", "ba", 1), ("kitten", "sitting", 3), ("abcd", "badc", 2),
        ("limit", "ceiling", 5),
    ])
    func `the distance of two words counts insertions, deletions, replacements and swaps`(left: String, right: String, distance: Int) {
        #expect(editDistance(Array(left.utf8), Array(right.utf8)) == distance)
        #expect(editDistance(Array(right.utf8), Array(left.utf8)) == distance)
    }

    @Test func `a manager that never ran has an empty status`() {
        let manager = manager()
        #expect(manager.status.lifecycle == LifecycleStatus() && manager.status.lifecycle.state == "active", "no life cycle has joined")
        _ = Lifecycle(manager)
        let status = manager.status
        #expect(status.memory == nil && status.level == "normal" && status.holders.isEmpty && status.actions.isEmpty && !status.isDryRun)
        #expect(status.counts.transitions.isEmpty && status.counts.actions.isEmpty && status.counts.dropped.allSatisfy { $0.count == 0 })
        #expect(status.lifecycle.state == "notRunning" && !status.lifecycle.isReady && status.lifecycle.reason == "not launched")
    }

    @Test func `caches show held bytes, limit and counts, in the order of asking`() throws {
        let manager = manager()
        let sessions = PurgeableCache<Int, [UInt8]>("sessions", limit: .mebibytes(1), rebuildCost: .expensive, cost: { _, bytes in bytes.count })
        manager.registerGroup("web").registerGroup("sessions").register(sessions, tags: ["tenant"])
        manager.register("sqlite", byteCount: { 4096 }, release: { _ in 0 })
        for key in 0..<4 { sessions.insert(Array(repeating: 1, count: 1000), forKey: key) }
        _ = (sessions.value(forKey: 1), sessions.value(forKey: 2), sessions.value(forKey: 9))
        let holders = manager.status.holders
        #expect(holders.map(\.name) == ["sqlite", "sessions"])
        let shown = try #require(holders.last), cache = try #require(shown.cache)
        #expect(shown.group == "web/sessions" && shown.tags == ["tenant"] && shown.rebuildCost == "expensive")
        #expect(shown.limitBytes == 1 << 20 && shown.heldBytes == sessions.heldBytes && shown.volatileBytes == nil)
        #expect(cache.count == 4 && cache.hits == 2 && cache.misses == 1 && abs(cache.hitRatio - 2 / 3) < 1e-9)
        #expect(holders[0].cache == nil && holders[0].heldBytes == 4096 && holders[0].limitBytes == nil)
    }

    @Test func `tasks are counted by outcome`() async throws {
        let manager = manager()
        manager.beginBackgroundTask("done") { _, _ in }.end()
        let late = manager.beginBackgroundTask("late") { task, _ in task.end() }
        manager.expireBackgroundTasks(.operator, within: .seconds(5))
        #expect(!late.isActive)
        _ = manager.beginBackgroundTask("dropped") { _, _ in }
        let stuck = manager.beginBackgroundTask("stuck") { _, _ in }
        stuck.progress(completed: 3, total: 4)
        let before = manager.status.tasks
        #expect((before.running, before.ended, before.expired, before.leaked, before.givenUp) == (1, 1, 1, 1, 0))
        #expect(before.oldest.map(\.name) == ["stuck"] && before.oldest[0].completed == 3 && before.oldest[0].total == 4)
        #expect(manager.expireBackgroundTasks(.operator, within: .zero) == ["stuck"])
        let after = manager.status.tasks
        #expect((after.running, after.ended, after.expired, after.leaked, after.givenUp) == (0, 1, 1, 1, 1) && after.oldest.isEmpty)
        _ = stuck
    }

    @Test func `the oldest of very many tasks are listed, and all are counted`() {
        let manager = manager()
        let tasks = (0..<1000).map { manager.beginBackgroundTask("task \($0)") { _, _ in } }
        let status = manager.status.tasks
        #expect(status.running == 1000 && status.oldest.map(\.name) == (0..<ManagerStatus.mostTasks).map { "task \($0)" })
        for task in tasks { task.end() }
    }

    @Test func `levels are counted by target and reason, actions by mode and outcome, releases by bytes`() async throws {
        try await RunningManager.run { running in
            let held = Mutex(1 << 30)
            running.manager.register("holder", byteCount: { held.withLock { $0 } }) { target in
                held.withLock { held in
                    let gone = min(held, target)
                    held -= gone
                    return gone
                }
            }
            await running.available(.mebibytes(900))
            #expect(running.manager.status.memory?.usageBytes == (124 << 20) && running.manager.counts.transitions.isEmpty)
            await running.available(.mebibytes(40))
            // An action is counted before its report.
            await running.until { running.manager.reports.contains { $0.action == .release } }
            let status = running.manager.status
            let memory = try #require(status.memory)
            #expect(status.level == "critical" && memory.evidence.contains("headroom") && memory.limitBytes == 1 << 30)
            #expect(memory.warningLineBytes ?? 0 < memory.criticalLineBytes ?? 0 && memory.criticalLineBytes ?? 0 < memory.usageBytes)
            #expect(status.counts.transitions.contains { $0.to == "critical" && $0.source == "headroom" && $0.count == 1 })
            let release = try #require(status.counts.actions.first { $0.action == "release" })
            #expect(release.mode == "live" && release.outcome == "done" && release.count >= 1)
            #expect(status.counts.releases.releasedBytes > 0 && status.counts.releases.byDuration.reduce(0, +) == status.counts.releases.count)
            let action = try #require(status.actions.first { $0.action == "release" })
            #expect(action.level == "critical" && action.evidence.contains("headroom") && action.releasedBytes > 0 && action.outcome == "done")
        }
    }

    @Test func `releases are summed, by duration as well, and a rise of memory meanwhile takes nothing from the falls`() {
        var sums = ManagerCounts.Releases()
        var report = ActionReport(eventID: 1, action: .suspend, level: .warning, evidence: [], began: .zero)
        (report.asked, report.released, report.releasedVolatile, report.taken) = (.mebibytes(8), .mebibytes(4), .mebibytes(2), .mebibytes(1))
        for (took, resident, usage) in [(1, 3, 5), (5, -3, -5), (6, 2, 1), (2501, 0, 0)] {
            report.took = .milliseconds(took)
            report.before.resident = .mebibytes(10 + resident)
            report.before.usage = .mebibytes(20 + usage)
            report.after.resident = .mebibytes(10)
            report.after.usage = .mebibytes(20)
            sums.add(report)
        }
        #expect(sums.count == 4 && abs(sums.seconds - 2.513) < 1e-9 && sums.byDuration == [1, 1, 1, 0, 0, 0, 1])
        #expect(sums.askedBytes == 32 << 20 && sums.releasedBytes == 16 << 20 && sums.releasedVolatileBytes == 8 << 20)
        #expect(sums.takenBytes == 4 << 20 && sums.residentFallBytes == 5 << 20 && sums.usageFallBytes == 6 << 20)
    }

    @Test func `a rehearsal and a dry run are counted apart`() async throws {
        try await RunningManager.run(policy: PressurePolicy(isDryRun: true)) { running in
            running.manager.register("holder", byteCount: { 1 << 30 }, release: { $0 })
            await running.available(.mebibytes(40))
            await running.until { !running.manager.reports.isEmpty }
            #expect(running.manager.status.isDryRun && running.manager.counts.actions.allSatisfy { $0.mode == "dry run" })
            #expect(running.manager.counts.releases.count == 0)
        }
        try await RunningManager.run { running in
            running.manager.register("holder", byteCount: { 1 << 30 }, release: { $0 })
            await running.available(.mebibytes(900))
            running.manager.simulate(.warning, for: .seconds(1))
            await running.until { running.manager.counts.releases.count > 0 }
            #expect(running.manager.counts.transitions.map(\.source) == ["simulated"])
            #expect(running.manager.counts.actions.allSatisfy { $0.mode == "simulated" })
        }
    }

    @Test func `T9 events that observers do not receive are counted, with the reason`() async throws {
        try await RunningManager.run { running in
            running.manager.observe(from: .normal) { _ in }
            for _ in 0..<2 {
                await running.available(.mebibytes(150), after: .seconds(1))
                for _ in 0..<12 { await running.available(.mebibytes(900), after: .seconds(1)) }
            }
            let rested = running.manager.counts.dropped.first { $0.reason == "rested" }
            #expect(rested?.count == 1)
        }
        let registry = ObserverRegistry()
        for id: UInt64 in 1...3 {
            registry.post(PressureEvent(id: id, level: .warning, previous: .normal, shortfall: .zero, timeLeft: nil, evidence: []))
        }
        #expect(registry.superseded == 2)
    }

    @Test func `a status survives encoding and decoding, and unknown keys are ignored`() throws {
        let manager = manager()
        manager.register(PurgeableCache<Int, Int>("numbers", limit: .kibibytes(64)))
        manager.lifecycle.pausables.add(ConcurrencyLimiter("render", limit: 8))
        let status = manager.status
        #expect(status.admissions.map(\.name) == ["render"] && status.admissions[0].limit > 0)
        let text = try JSONEncoder().encode(status)
        #expect(try JSONDecoder().decode(ManagerStatus.self, from: text) == status)
        var object = try #require(try JSONSerialization.jsonObject(with: text) as? [String: Any])
        object["fromTheFuture"] = [1, 2, 3]
        #expect(try JSONDecoder().decode(ManagerStatus.self, from: JSONSerialization.data(withJSONObject: object)) == status)
    }

    // MARK: Holders that don't answer

    /// A purgeable that blocks in `heldBytes` from `block()` until `letGo()`.
    final class Stuck: Purgeable {
        let name: String, rebuildCost = RebuildCost.cheap
        private let state = Mutex((blocks: false, inside: 0))

        init(_ name: String) { self.name = name }

        var inside: Int { state.withLock { $0.inside } }
        func block() { state.withLock { $0.blocks = true } }
        func letGo() { state.withLock { $0.blocks = false } }

        var heldBytes: Int {
            state.withLock { $0.inside += 1 }
            blockUntil("the test's word") { !state.withLock { $0.blocks } }
            state.withLock { $0.inside -= 1 }
            return 4096
        }

        func release(_ target: Int) -> Int { 0 }
    }

    @Test func `a blocking purgeable is waited for once, named, and listed with the last answer`() async throws {
        let clock = ManualClock(), manager = manager(clock), stuck = Stuck("stuck"), numbers = PurgeableCache<Int, Int>("numbers")
        manager.register(stuck)
        manager.register("other", byteCount: { 7 }, release: { _ in 0 })
        manager.register(numbers)
        #expect(manager.status.holders.allSatisfy { $0.unansweredSeconds == nil })
        stuck.block()
        defer { stuck.letGo() }
        async let waiting = manager.takeStatus()
        await until { stuck.inside != 0 }
        let first: ManagerStatus
        do {
            async let _ = clock.pass()
            first = await waiting
        }
        #expect(first.holders.first?.unansweredSeconds ?? 0 >= 1 && first.holders.first?.heldBytes == 4096)
        // Time stands still, so that the status waits for no purgeable.
        numbers.insert(1, forKey: 1)
        let second = manager.status
        #expect(
            second.holders.map(\.name) == ["stuck", "other", "numbers"] && second.holders.map { $0.unansweredSeconds != nil } == [true, false, false])
        #expect(second.holders[1].heldBytes == 7 && second.holders[2].cache?.count == 1)
        stuck.letGo()
        await until { stuck.inside == 0 }
        await until { manager.status.holders[0].unansweredSeconds == nil }
    }

    @Test func `polls that have ended and polls that were left out make no room for more polls at once`() async throws {
        let clock = ManualClock(), manager = manager(clock), stuck = (0..<6).map { Stuck("stuck \($0)") }
        for holder in stuck { manager.register(holder) }
        let poll = manager.parts.poll, entries = manager.parts.purgeables.snapshot
        func inside() -> Int { stuck.reduce(0) { $0 + $1.inside } }
        for _ in 0..<3 { try await onThread { poll.ask(entries) }.value }
        for holder in stuck { holder.block() }
        defer { for holder in stuck { holder.letGo() } }
        var polls: [Task<Void, any Error>] = []
        for number in 1...PurgeablePoll.most {
            polls.append(onThread { poll.ask(entries) })
            await until { inside() == number }
        }
        // Time stands still, so that only a poll that is left out returns.
        let leftOut = Counter()
        for number in 1...2 {
            polls.append(
                PlimsollTests.onThread {
                    poll.ask(entries)
                    leftOut.add(1)
                })
            await until { leftOut.value == number || inside() > PurgeablePoll.most }
        }
        #expect(leftOut.value == 2 && inside() == PurgeablePoll.most)
        for holder in stuck { holder.letGo() }
        for poll in polls { try await poll.value }
    }

    @Test func `a few threads wait for any number of blocking purgeables, at any number of requests`() async throws {
        let clock = ManualClock(), manager = manager(clock), stuck = (0..<8).map { Stuck("stuck \($0)") }
        for holder in stuck {
            manager.register(holder)
            holder.block()
        }
        defer { for holder in stuck { holder.letGo() } }
        do {
            async let _ = clock.pass()
            for _ in 0..<20 { _ = await manager.takeStatus() }
        }
        // No request waited for threads that came late, because time had advanced.
        await until { stuck.reduce(0, { $0 + $1.inside }) >= PurgeablePoll.most }
        clock.advance(by: .seconds(1))
        #expect(stuck.reduce(0) { $0 + $1.inside } == PurgeablePoll.most)
        #expect(manager.status.holders.filter { $0.unansweredSeconds != nil }.map(\.name) == (0..<PurgeablePoll.most).map { "stuck \($0)" })
    }
}

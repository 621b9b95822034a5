import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The readings of one kind, from a source that cannot always be read.
@Suite(.serialized, .timeLimit(.minutes(5))) struct EnvironmentWatchTests {
    /// A source with one value for all kinds.
    private final class Facts: EnvironmentSource {
        private struct State {
            var value: EnvironmentValue?
            var reads = 0
            var watches = 0
            /// The blockades that hold the next readings, one each.
            var holds: [Blockade] = []
            var sink: (@Sendable (EnvironmentChange.Kind, Int) -> Void)?
        }

        private let state = Mutex(State())

        var reads: Int { state.withLock { $0.reads } }
        var watches: Int { state.withLock { $0.watches } }
        var signals: [Capabilities.Signal] { [] }

        func hold(_ blockades: [Blockade]) { state.withLock { $0.holds = blockades } }
        func set(_ value: EnvironmentValue?) { state.withLock { $0.value = value } }
        func tell(_ kind: EnvironmentChange.Kind, _ events: Int) { state.withLock { $0.sink }?(kind, events) }

        func start(_ sink: @escaping @Sendable (EnvironmentChange.Kind, Int) -> Void) { state.withLock { $0.sink = sink } }
        func collect() {}

        func watch(_ kind: EnvironmentChange.Kind) -> Bool {
            state.withLock { $0.watches += 1 }
            return true
        }

        func unwatch(_ kind: EnvironmentChange.Kind) { state.withLock { $0.watches -= 1 } }

        func read(_ kind: EnvironmentChange.Kind) -> EnvironmentValue? {
            let (value, hold): (EnvironmentValue?, Blockade?) = state.withLock { state in
                state.reads += 1
                return (state.value, state.holds.isEmpty ? nil : state.holds.removeFirst())
            }
            hold?.wait()
            return value
        }
    }

    private let clock = ManualClock()
    private let facts = Facts()
    private let threads = HandlerThreads()
    private let begins = Log<EnvironmentValue?>()
    private let changes = Log<EnvironmentChange>()

    private func watch(beforeEnd: @escaping @Sendable () -> Void = {}) -> EnvironmentWatch {
        EnvironmentWatch(
            source: facts, alarms: Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper)), threads: threads,
            onBaseline: { [begins] _, value in
                if value == nil { beforeEnd() }
                begins.add(value)
            }, onChange: { [changes] in changes.add($0) }, onChanged: {})
    }

    /// Moves the clock to the next reading, which comes after `wait` and not before.
    private func awaitReading(after wait: Duration) async {
        let before = facts.reads
        clock.advance(by: wait - ManualClock.step)
        await until("rest") { threads.busy == 0 }
        #expect(facts.reads == before, "\(wait)")
        clock.advance(by: ManualClock.step)
        await until("a reading after \(wait)") { facts.reads == before + 1 && threads.busy == 0 }
    }

    @Test func `a kind that cannot be read is tried again after twice as long each time, a minute and four seconds at most`() async {
        let watch = watch()
        #expect(watch.add(.locale) && facts.reads == 1)
        for wait in [1, 2, 4, 8, 16, 32, 64] { await awaitReading(after: .seconds(wait)) }
        #expect(begins.all.isEmpty)
        facts.set(.text("a"))
        await awaitReading(after: .seconds(64))
        #expect(begins.all == [.text("a")] && watch.value(of: .locale) == .text("a"))
        clock.advance(by: .seconds(200))
        await until("rest") { threads.busy == 0 }
        #expect(facts.reads == 9, "once read, read only after an event")
        facts.set(nil)
        facts.tell(.locale, 2)
        await awaitReading(after: .milliseconds(100))
        facts.set(.text("b"))
        await awaitReading(after: .seconds(1))
        #expect(changes.all == [EnvironmentChange(.locale, from: .text("a"), to: .text("b"), count: 2)])
        watch.remove(.locale)
    }

    @Test func `events on a kind that cannot be read begin no further retries, and a success ends the awaited one`() async {
        let watch = watch()
        #expect(watch.add(.locale) && facts.reads == 1)
        for round in 2...6 {
            facts.tell(.locale, 1)
            clock.advance(by: .milliseconds(100))
            await until("reading \(round)") { facts.reads == round && threads.busy == 0 }
        }
        // A second after the first reading, and then after twice as long each time.
        await awaitReading(after: .milliseconds(500))
        for wait in [2, 4, 8] { await awaitReading(after: .seconds(wait)) }
        facts.set(.text("a"))
        facts.tell(.locale, 1)
        await awaitReading(after: .milliseconds(100))
        #expect(begins.all == [.text("a")])
        let reads = facts.reads
        clock.advance(by: .seconds(200))
        await until("rest") { threads.busy == 0 }
        #expect(facts.reads == reads, "no retry is left")
        watch.remove(.locale)
    }

    @Test func `a kind is watched until each watch has ended, and read by the first`() async {
        facts.set(.text("a"))
        let watch = watch()
        #expect(watch.add(.locale) && watch.add(.locale) && !watch.add(.custom("x")))
        #expect(facts.reads == 1 && facts.watches == 2 && watch.count(of: .locale) == 2 && begins.all == [.text("a")])
        watch.remove(.locale)
        #expect(facts.watches == 1 && watch.count(of: .locale) == 1 && begins.all.count == 1)
        watch.remove(.locale)
        #expect(facts.watches == 0 && watch.count(of: .locale) == 0 && begins.all == [.text("a"), nil])
        facts.tell(.locale, 1)
        clock.advance(by: .seconds(1))
        await until("rest") { threads.busy == 0 }
        #expect(facts.reads == 1)
    }

    @Test func `a reading that began for an earlier watch is no baseline of a later one`() async {
        let watch = watch(), early = Blockade(), late = Blockade()
        facts.set(.text("old"))
        facts.hold([early, late])
        async let first = onThread { watch.add(.locale) }
        await until("the first reading") { early.count == 1 }
        watch.remove(.locale)
        facts.set(.text("new"))
        async let second = onThread { watch.add(.locale) }
        await until("the second reading") { late.count == 1 }
        early.open()
        #expect(await first)
        late.open()
        #expect(await second)
        #expect(begins.all == [nil, .text("new")] && watch.value(of: .locale) == .text("new"))
        watch.remove(.locale)
    }

    @Test func `a watch that begins while the last one ends reports its value after that end`() async {
        facts.set(.text("a"))
        let release = Blockade(), adding = Log<Int32>()
        let watch = watch { release.wait() }
        #expect(watch.add(.locale))
        async let ended: Void = onThread { watch.remove(.locale) }
        await until("the end") { release.count == 1 }
        async let added = onThread {
            adding.add(threadNumber)
            return watch.add(.locale)
        }
        await until("the new watch has its value, or waits for the end") {
            begins.all.count == 2 || facts.watches == 2 && adding.all.first.map { isBlocked($0) } ?? false
        }
        release.open()
        await ended
        #expect(await added)
        #expect(begins.all == [.text("a"), nil, .text("a")])
        watch.remove(.locale)
    }

    @Test func `a watch that is dropped ends its watches of the source`() {
        facts.set(.text("a"))
        do {
            let watch = watch()
            for kind in [EnvironmentChange.Kind.locale, .locale, .timeZone] { #expect(watch.add(kind)) }
            #expect(facts.watches == 3)
        }
        #expect(facts.watches == 0)
    }

    @Test func `a handler that takes exactly five seconds is named at that time, and at its end`() async {
        let at = Surroundings()
        at.lifecycle.onEnvironmentChange("slow", .locale) { [clock = at.clock] _ in clock.advance(by: .seconds(5)) }
        at.lifecycle.setLocale("de_DE")
        await until("both reports") { at.lifecycle.slowEnvironmentCalls.count == 2 }
        let calls = at.lifecycle.slowEnvironmentCalls
        #expect(calls.map(\.took) == [.seconds(5), .seconds(5)] && calls.map(\.isFinished) == [false, true])
    }
}

import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Single changes: their effect, and their merging.
@Suite struct EnvironmentChangeTests {
    @Test func `a change has an effect if its values differ, or if there are none`() {
        let rows: [(from: EnvironmentValue?, to: EnvironmentValue?, isFact: Bool, isNet: Bool)] = [
            (nil, nil, true, true), (nil, .text("a"), false, true), (.text("a"), nil, false, true),
            (.text("a"), .text("b"), false, true), (.text("a"), .text("a"), false, false), (.absent, .flag(false), false, true),
        ]
        for row in rows {
            let change = EnvironmentChange(.custom("x"), from: row.from, to: row.to)
            #expect(change.isBareFact == row.isFact && change.isNet == row.isNet && change.count == 1, "\(change)")
        }
    }

    @Test func `a merged change keeps the first value and the last, and counts all events`() {
        var fact = EnvironmentChange(.custom("x"), count: 2), value = EnvironmentChange(.custom("x"), from: .text("a"), to: .text("b"))
        fact.merge(EnvironmentChange(.custom("x"), count: 3))
        #expect(fact == EnvironmentChange(.custom("x"), count: 5))
        fact.merge(EnvironmentChange(.custom("x"), from: .text("a"), to: .text("b")))
        #expect(fact == EnvironmentChange(.custom("x"), from: .text("a"), to: .text("b"), count: 6))
        value.merge(EnvironmentChange(.custom("x"), from: .text("b"), to: .text("c")))
        value.merge(EnvironmentChange(.custom("x"), count: 0))
        #expect(value == EnvironmentChange(.custom("x"), from: .text("a"), to: .text("c"), count: 3))
        value.count = .max
        value.merge(EnvironmentChange(.custom("x")))
        #expect(value.count == .max)
    }

    @Test func `the parts of a power supply that were unknown at first come from the next change`() {
        var change = EnvironmentChange(.power, from: .power(isOnMains: true), to: .power(isOnMains: false))
        change.merge(EnvironmentChange(.power, from: .power(isOnMains: false, percent: 50), to: .power(percent: 49)))
        #expect(change.from == .power(isOnMains: true, percent: 50) && change.to == .power(isOnMains: false, percent: 49))
    }

    @Test func `clocks differ from a tenth of a second on, and files by their content and size`() {
        let now = EnvironmentValue.clock(.seconds(100)), tenth = Duration.milliseconds(100)
        for (step, isSame) in [(Duration.zero, true), (tenth - .nanoseconds(1), true), (tenth, false), (.seconds(3600), false)] {
            #expect(now.isSame(as: .clock(.seconds(100) + step)) == isSame && now.isSame(as: .clock(.seconds(100) - step)) == isSame)
        }
        let file = EnvironmentValue.file(contentHash: 1, size: 5)
        for (hash, size, isSame) in [(1, 5, true), (2, 5, false), (1, 6, false), (2, 6, false)] as [(UInt64, Int, Bool)] {
            #expect(file.isSame(as: .file(contentHash: hash, size: size)) == isSame, "\(hash) \(size)")
        }
        #expect(EnvironmentValue.text("a").isSame(as: .text("a")) && !EnvironmentValue.text("a").isSame(as: .text("b")))
    }

    @Test func `sources are asked for facts of the machine, and other kinds are only posted`() {
        let read: [EnvironmentChange.Kind] = [.clock, .timeZone, .day, .locale, .file("/a"), .device("net"), .power]
        let posted: [EnvironmentChange.Kind] = [.limit, .credentials("a"), .protectedData, .custom("x")]
        #expect(read.filter(\.isRead) == read && posted.filter(\.isRead).isEmpty)
    }

    @Test func `changes that come after many were taken are merged with those that still wait`() {
        var slots = EnvironmentSlots()
        let kinds = (0..<100).map { EnvironmentChange.Kind.custom("\($0)") }
        var taken: [EnvironmentChange] = []
        for kind in kinds { slots.add(EnvironmentChange(kind)) }
        for _ in 0..<60 { if let change = slots.take() { taken.append(change) } }
        let fresh = kinds.prefix(60).map { EnvironmentChange($0) }, merged = kinds.suffix(40).map { EnvironmentChange($0, count: 2) }
        #expect(taken == fresh && slots.room < 100)
        for kind in kinds.suffix(40) {
            #expect(slots.count(of: kind) == 1)
            slots.add(EnvironmentChange(kind))
        }
        #expect(slots.count(of: kinds[0]) == 0 && slots.count(of: kinds[99]) == 2)
        taken = []
        while let change = slots.take() { taken.append(change) }
        #expect(taken == merged && slots.isEmpty && slots.room == 0)
    }

    @Test func `the epoch of a derived value grows by one with each change, used or not`() {
        let made = Counter()
        let value = DerivedValue("value", dependsOn: [.locale]) { () -> Int in
            made.add(1)
            return made.value
        }
        #expect(value.epoch == 1 && value.value == 1 && value.value == 1)
        value.invalidate()
        value.invalidate()
        #expect(value.epoch == 3 && made.value == 1 && value.value == 2 && value.epoch == 3)
    }

    // MARK: A handler

    @Test func `a handler is served by one job at a time, and not during a hold`() {
        let seen = Log<EnvironmentChange.Kind>()
        let observer = EnvironmentObserver("formats", [.locale, .timeZone]) { seen.add($0.kind) }
        #expect(observer.wants(.locale) && !observer.wants(.clock) && EnvironmentObserver("all", []) { _ in }.wants(.clock))
        #expect(!observer.schedule() && observer.isIdle)
        observer.add(EnvironmentChange(.locale))
        observer.add(EnvironmentChange(.timeZone))
        #expect(!observer.isIdle && observer.schedule() && !observer.schedule())
        observer.work(isHeld: { true }, now: { .zero }, watch: { _ in { _ in } })
        #expect(seen.all.isEmpty && !observer.isIdle && observer.schedule())
        observer.work(isHeld: { false }, now: { .zero }, watch: { _ in { _ in } })
        #expect(seen.all == [.locale, .timeZone] && observer.isIdle && !observer.schedule())
    }

    @Test func `the calls of a round add up, with the one under way`() {
        let clock = ManualClock(), inside = Log<EnvironmentCall?>(), observed = Log<EnvironmentObserver>(), tooks = Log<Duration>()
        let observer = EnvironmentObserver("slow", []) { _ in
            clock.advance(by: .seconds(2))
            inside.add(observed.all.first?.round(at: clock.timekeeper.elapsed()))
            clock.advance(by: .seconds(1))
        }
        observed.add(observer)
        clock.advance(by: .seconds(10))
        for kind in [EnvironmentChange.Kind.locale, .timeZone] { observer.add(EnvironmentChange(kind)) }
        #expect(observer.round(at: .seconds(10)) == nil && observer.schedule())
        observer.work(isHeld: { false }, now: { clock.timekeeper.elapsed() }, watch: { _ in { tooks.add($0) } })
        let first = EnvironmentCall("slow", .locale, took: .seconds(2), isFinished: false)
        let second = EnvironmentCall("slow", .timeZone, took: .seconds(5), isFinished: false)
        #expect(inside.all == [first, second] && tooks.all == [.seconds(3), .seconds(3)])
        #expect(observer.round(at: .seconds(99)) == EnvironmentCall("slow", .timeZone, took: .seconds(6), isFinished: true))
        observer.startRound()
        #expect(observer.round(at: .seconds(99)) == nil)
    }
}

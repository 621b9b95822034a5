import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The changes that a reader finds after many changes came while no reader could take them.
@Suite struct EnvironmentSlotTests {
    private func text(_ kind: EnvironmentChange.Kind, _ from: String, _ to: String) -> EnvironmentChange {
        EnvironmentChange(kind, from: .text(from), to: .text(to))
    }

    @Test func `C59 ten thousand changes become one change, from the first value to the last, with their number`() {
        var slots = EnvironmentSlots()
        for number in 0..<10_000 { slots.add(text(.locale, "\(number)", "\(number + 1)")) }
        #expect(slots.take() == EnvironmentChange(.locale, from: .text("0"), to: .text("10000"), count: 10_000))
        #expect(slots.take() == nil && slots.isEmpty)
    }

    @Test func `C59 a change back to the start is no change, and counts if another follows before a poll`() {
        var slots = EnvironmentSlots()
        slots.add(text(.locale, "a", "b"))
        slots.add(text(.locale, "b", "a"))
        #expect(!slots.isEmpty && slots.take() == nil && slots.isEmpty)
        for (from, to) in [("a", "b"), ("b", "a"), ("a", "c")] { slots.add(text(.locale, from, to)) }
        #expect(slots.take() == EnvironmentChange(.locale, from: .text("a"), to: .text("c"), count: 3))
    }

    @Test func `C59 each kind has a slot, and slots come in the order of their first event`() {
        var slots = EnvironmentSlots()
        let kinds: [EnvironmentChange.Kind] = [.file("/b"), .file("/a"), .locale, .credentials("x"), .custom("x")]
        for _ in 0..<3 { for kind in kinds { slots.add(EnvironmentChange(kind)) } }
        for kind in kinds { #expect(slots.take() == EnvironmentChange(kind, count: 3)) }
        #expect(slots.take() == nil)
    }

    @Test func `C58 facts without a value do not cancel out`() {
        var slots = EnvironmentSlots()
        for _ in 0..<4 { slots.add(EnvironmentChange(.credentials("tenant-42"))) }
        #expect(slots.take() == EnvironmentChange(.credentials("tenant-42"), count: 4))
    }

    @Test func `C63 a clock set back to within a tenth of a second counts as not set`() {
        var slots = EnvironmentSlots()
        slots.add(EnvironmentChange(.clock, from: .clock(.seconds(100)), to: .clock(.seconds(3700))))
        slots.add(EnvironmentChange(.clock, from: .clock(.seconds(3700)), to: .clock(.seconds(100.02))))
        #expect(slots.take() == nil)
        slots.add(EnvironmentChange(.clock, from: .clock(.seconds(100)), to: .clock(.seconds(100.2))))
        #expect(slots.take() != nil)
    }

    @Test func `C66 the same content written again is no change, unless unreadable`() {
        let old = EnvironmentValue.file(contentHash: 1, size: 5, modified: .seconds(1)),
            touched = EnvironmentValue.file(contentHash: 1, size: 5, modified: .seconds(2))
        #expect(old.isSame(as: touched))
        #expect(!old.isSame(as: EnvironmentValue.file(contentHash: 2, size: 5, modified: .seconds(1))))
        #expect(
            !EnvironmentValue.file(contentHash: nil, size: 5, modified: .seconds(1)).isSame(
                as: EnvironmentValue.file(contentHash: nil, size: 5, modified: .seconds(2))))
    }

    @Test func `C71 a notice stays while the machine runs on battery`() {
        var slots = EnvironmentSlots()
        slots.add(EnvironmentChange(.power, from: .power(isOnMains: true, percent: 100), to: .power(isOnMains: false, percent: 100)))
        slots.add(EnvironmentChange(.power, to: .power(notice: "gone in 120 s")))
        slots.add(EnvironmentChange(.power, from: .power(isOnMains: false, percent: 100), to: .power(isOnMains: false, percent: 99)))
        let change = slots.take()
        #expect(change?.to == .power(isOnMains: false, percent: 99, notice: "gone in 120 s") && change?.count == 3)
        #expect(change?.from == .power(isOnMains: true, percent: 100))
    }

    @Test func `C59 a slow reader's slots take bounded room`() {
        var slots = EnvironmentSlots()
        slots.add(EnvironmentChange(.custom("0")))
        for number in 1..<100_000 {
            slots.add(EnvironmentChange(.custom("\(number)")))
            #expect(slots.take()?.kind == .custom("\(number - 1)"))
        }
        #expect(slots.room < 1000)
    }

    @Test func `C58 C59 property: a reader saw the net changes, and no others`() {
        var seen = 0, cancelled = 0
        for seed in seeds(0..<500) {
            var random = SeededGenerator(seed: seed)
            let kinds: [EnvironmentChange.Kind] = [.locale, .file("/a"), .custom("x"), .timeZone]
            var slots = EnvironmentSlots()
            var holds: [EnvironmentChange.Kind: String] = [:], notifiedOf: [EnvironmentChange.Kind: String] = [:]
            var events: [EnvironmentChange.Kind: Int] = [:]
            for kind in kinds { (holds[kind], notifiedOf[kind]) = ("0", "0") }
            func take() -> Bool {
                guard let change = slots.take() else { return false }
                seen += 1
                #expect(change.from != change.to, "seed \(seed)")
                #expect(change.from == .text(notifiedOf[change.kind]!) && change.to == .text(holds[change.kind]!), "seed \(seed)")
                #expect(change.count == events[change.kind], "seed \(seed)")
                notifiedOf[change.kind] = holds[change.kind]
                events[change.kind] = 0
                return true
            }
            for _ in 0..<Int.random(in: 1...200, using: &random) {
                if Int.random(in: 0..<4, using: &random) == 0 {
                    if !take() {
                        cancelled += events.values.reduce(0, +)
                        events = [:]
                    }
                } else {
                    let kind = kinds.randomElement(using: &random)!
                    let to = "\(Int.random(in: 0..<3, using: &random))"
                    // A take that found another kind has forgotten the kinds that it passed over, with their events.
                    if slots.count(of: kind) == 0 { events[kind] = 0 }
                    slots.add(text(kind, holds[kind]!, to))
                    holds[kind] = to
                    events[kind, default: 0] += 1
                }
            }
            var isMore = true
            while isMore { isMore = take() }
            #expect(holds == notifiedOf, "seed \(seed)")
        }
        if !hasChosenSeed { #expect(seen > 10_000 && cancelled > 100, "the property was hardly exercised: \(seen), \(cancelled)") }
    }
}

import CAllocationCounter
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Values that are made from the environment.
@Suite(.serialized, .timeLimit(.minutes(5))) struct EnvironmentDerivedTests {
    let at = Surroundings()

    @Test func `C65 a derived value is made on first use, and again on the first use after a dependency changed`() async {
        let made = Counter()
        let formatter = DerivedValue("formatter", dependsOn: [.timeZone, .locale]) { () -> Int in
            made.add(1)
            return made.value
        }
        at.lifecycle.register(formatter)
        #expect(made.value == 0)
        #expect(formatter.value == 1 && formatter.value == 1)
        at.lifecycle.post(.custom("other"))
        #expect(formatter.value == 1)
        at.lifecycle.setLocale("de_DE")
        at.lifecycle.setLocale("de_AT")
        #expect(made.value == 1 && formatter.value == 2 && formatter.value == 2)
        at.source.surroundings.set(.timeZone, .text("Europe/Vienna"))
        let before = formatter.epoch
        at.clock.advance(by: .milliseconds(100))
        await until { formatter.epoch != before }
        #expect(formatter.value == 3)
    }

    @Test func `C65 on the way back a derived value is out of date before any admission`() async {
        let formatter = DerivedValue("formatter", dependsOn: [.timeZone]) { [at] in at.source.surroundings.read(.timeZone) }
        at.source.surroundings.set(.timeZone, .text("UTC"))
        at.lifecycle.register(formatter)
        #expect(formatter.value == .text("UTC"))
        at.environment.hold()
        at.source.surroundings.setSilent(true)
        at.source.surroundings.set(.timeZone, .text("Europe/Berlin"))
        _ = await at.resync()
        #expect(formatter.value == .text("Europe/Berlin"))
    }

    @Test func `C65 a derived value without a registration never changes, nor after a cancel`() {
        let made = Counter()
        let value = DerivedValue("value", dependsOn: [.locale]) { made.add(1) }
        value.value
        at.lifecycle.setLocale("a")
        value.value
        #expect(made.value == 1)
        let registration = at.lifecycle.register(value)
        value.value
        at.lifecycle.setLocale("b")
        value.value
        #expect(made.value == 3)
        registration.cancel()
        at.lifecycle.setLocale("c")
        value.value
        #expect(made.value == 3)
    }

    @Test func `C65 a change during a build makes that build's value out of date`() {
        let made = Counter()
        let value = DerivedValue("value", dependsOn: [.locale]) { [at] () -> String? in
            made.add(1)
            let locale = at.lifecycle.locale
            if made.value == 1 { at.lifecycle.setLocale("new") }
            return locale
        }
        at.lifecycle.setLocale("old")
        at.lifecycle.register(value)
        #expect(value.value == "old" && value.value == "new" && value.value == "new")
        #expect(made.value == 2)
    }

    /// A derived value that reports each invalidation.
    private final class Probe: Derived {
        let kinds: Set<EnvironmentChange.Kind> = [.locale]
        private let onInvalidation: @Sendable () -> Void

        init(_ onInvalidation: @escaping @Sendable () -> Void) { self.onInvalidation = onInvalidation }
        func invalidate() { onInvalidation() }
    }

    @Test func `C65 derived values are out of date before any reader or handler has the change`() async {
        let changes = at.lifecycle.readEnvironment(), threads = at.manager.parts.threads
        let seen = Log<EnvironmentChange>(), isFirst = Log<Bool>()
        let reading = Task { for await change in changes { seen.add(change) } }
        await until("the reader waits") { changes.reader.isAwaited }
        // Called by the registration as well.
        let registration = at.environment.add(
            Probe { isFirst.add(changes.reader.isAwaited && threads.busy == 0 && seen.all.isEmpty) })
        at.lifecycle.onEnvironmentChange("page", .locale) { seen.add($0) }
        at.lifecycle.setLocale("de_DE")
        await until("both have the change") { seen.all.count == 2 }
        #expect(isFirst.all.count == 2 && isFirst.all.last == true)
        registration.cancel()
        reading.cancel()
    }

    @Test func `C65 one build runs at a time for any number of readers, and none under a lock`() async {
        let building = Counter(), most = Counter(), made = Counter()
        // The build uses the environment and another derived value.
        let other = DerivedValue("other", dependsOn: []) { 1 }
        let value = DerivedValue("value", dependsOn: [.locale]) { [at] () -> String? in
            building.add(1)
            if building.value > 1 { most.add(1) }
            defer { building.add(-1) }
            made.add(other.value)
            return at.lifecycle.locale
        }
        at.lifecycle.register(value)
        at.lifecycle.setLocale("start")
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<4 { group.addTask { for _ in 0..<2000 { #expect(value.value != nil) } } }
            group.addTask { [at] in for number in 0..<200 { at.lifecycle.setLocale("\(number)") } }
        }
        #expect(most.value == 0 && value.value == "199" && made.value <= 202)
    }

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `C65 reading a derived value or an unchanged limit allocates nothing`() {
        let value = DerivedValue("value", dependsOn: [.locale]) { 7 }
        var sum = value.value
        let check = LimitCheck {}
        check.noticed(.mebibytes(512)) { _ in }
        let before = allocation_count()
        for _ in 0..<1000 {
            sum += value.value
            check.noticed(.mebibytes(512)) { _ in sum = 0 }
        }
        #expect(allocation_count() - before == 0 && sum == 7007)
    }
}

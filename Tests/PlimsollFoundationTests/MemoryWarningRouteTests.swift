import PlimsollFoundation
import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// The routes of a memory warning to one application.
@Suite(.timeLimit(.minutes(5))) struct MemoryWarningRouteTests {
    @Test func `C78 T11 a warning comes by four routes as one event, and the work is done once`() async throws {
        try await RunningManager.run { running in
            let ids = Log<String>(), work = Log<UInt64>(), once = OncePerEvent()
            let received: @Sendable (String, PressureEvent) -> Void = { route, event in
                ids.add("\(route) \(event.id) \(event.level)")
                once.run(event) { work.add(event.id) }
            }
            // The observer is registered first, yet the process's own route is called before the observer.
            running.manager.observe { received("observer", $0) }
            running.manager.levelSource(mask: [.warning, .critical]).handle { received("source", $0) }
            running.manager.onMemoryWarning { received("process", $0) }
            async let streamed: PressureEvent? = running.manager.pressureEvents.first { $0.level == .critical }
            async let sourced: PressureEvent? = running.manager.levelSource(mask: .critical).first { _ in true }
            // Both streams count as observers once iteration has begun.
            await until { running.manager.parts.observers.count >= 5 }
            await running.available(.mebibytes(40))
            let events = await (streamed, sourced)
            #expect(events.0 == events.1 && events.0?.level == .critical)
            await running.until { ids.all.count >= 3 }
            let id = try #require(events.0?.id)
            if let event = events.0 { received("stream", event) }
            if let event = events.1 { received("stream", event) }
            #expect(ids.all.prefix(3) == ["process \(id) critical", "observer \(id) critical", "source \(id) critical"] && work.all == [id])
        }
    }

    @Test func `T11 T9 work for an event is not done for an older late one, nor by two threads at once`() async {
        func event(_ id: UInt64) -> PressureEvent {
            PressureEvent(id: id, level: .warning, previous: .normal, shortfall: .zero, timeLeft: nil, evidence: [])
        }
        let once = OncePerEvent(), work = Log<UInt64>()
        for id: UInt64 in [1, 1, 3, 2, 3, 4] { once.run(event(id)) { work.add(id) } }
        #expect(work.all == [1, 3, 4])
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 { group.addTask { for id: UInt64 in 5..<1000 { once.run(event(id)) { work.add(id) } } } }
        }
        #expect(Set(work.all).count == work.all.count && work.all.contains(999))
    }

    @Test func `T10 recovery is no warning: no purgeable is asked, and only sources that include normal are notified`() async throws {
        try await RunningManager.run { running in
            let warnings = Log<PressureLevel>(), masked = Log<PressureLevel>(), all = Log<PressureLevel>()
            let asked = Log<Int>()
            running.manager.register("holder", byteCount: { 1 << 30 }) { (target: Int) in
                asked.add(target)
                return 0
            }
            running.manager.onMemoryWarning { warnings.add($0.level) }
            running.manager.levelSource(mask: .warning).handle { masked.add($0.level) }
            running.manager.levelSource(mask: [.normal, .warning, .critical]).handle { all.add($0.level) }
            await running.available(.mebibytes(40))
            await running.until { all.all == [.critical] && !asked.all.isEmpty }
            for _ in 0..<60 { await running.available(.mebibytes(900), after: .seconds(1)) }
            await running.until { all.all.last == .normal }
            let requests = asked.all.count
            for _ in 0..<20 { await running.available(.mebibytes(900), after: .seconds(1)) }
            #expect(asked.all.count == requests && warnings.all.allSatisfy { $0 != .normal } && masked.all.allSatisfy { $0 == .warning })
        }
    }
}

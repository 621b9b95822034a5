import PlimsollTesting
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Objects that must end with the manager and its life cycle.
@Suite struct LifecycleMemoryTests {
    @Test func `the alarms, the background tasks and the life cycle end with the manager`() {
        func parts() -> [() -> AnyObject?] {
            let manager = ResourceManager(source: ScriptedPressureSource(), clock: ManualClock())
            let lifecycle = manager.lifecycle, alarms = manager.parts.alarms, tasks = manager.parts.tasks
            return [
                { [weak lifecycle] in lifecycle }, { [weak alarms] in alarms }, { [weak tasks] in tasks },
            ]
        }
        for (place, part) in parts().enumerated() { #expect(part() == nil, "\(place)") }
    }
}

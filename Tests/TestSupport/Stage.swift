package import Plimsoll
package import PlimsollLifecycle
package import PlimsollTesting
import Testing

/// A manager that does not run, on a clock moved by hand.
package struct Stage {
    package let clock = ManualClock()
    package let log = Log<String>()
    package let exits = RunningManager.Exits()
    package let manager: ResourceManager
    package var lifecycle: Lifecycle { manager.lifecycle }

    package init(_ policy: LifecyclePolicy = .standard) {
        let exits = exits
        manager = ResourceManager(
            source: ScriptedPressureSource(), time: clock.timekeeper, exit: { exits.add($0, $1) })
        lifecycle.policy = policy
    }

    /// Logs each of its four calls.
    @discardableResult
    package func observe(_ name: String) -> Registration {
        let log = log
        return lifecycle.observe(
            name, onInactive: { _ in log.add("\(name) inactive") }, onActive: { _ in log.add("\(name) active") },
            onBackground: { _ in log.add("\(name) background") }, onForeground: { _ in log.add("\(name) foreground") })
    }

    /// Begins something and moves time on, a step at a time, until it has ended. Time stands still as long as any of the manager's threads has something to do
    /// but those that `blockade` holds up: they come late on a busy machine, and time moved by hand does not wait for them.
    package func whileTimePasses<Result: Sendable>(
        beside blockade: Blockade = Blockade(), _ body: @escaping @Sendable () async throws -> Result
    ) async throws -> Result {
        let task = Task { try await body() }
        let done = Counter()
        Task {
            _ = try? await task.value
            done.add(1)
        }
        await until("the end of what takes time") {
            guard done.value == 0 else { return true }
            // In this order: who is held up was busy before.
            let held = blockade.count
            if manager.parts.threads.busy == held { clock.advance(by: ManualClock.step) }
            return false
        }
        return try await task.value
    }
}

package import Plimsoll
package import PlimsollLifecycle
package import PlimsollTesting
import Testing

/// A manager that does not run, on a manual clock.
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

    /// Registers an observer that logs each of the four calls.
    @discardableResult
    package func observe(_ name: String) -> Registration {
        let log = log
        return lifecycle.observe(
            name, onInactive: { _ in log.add("\(name) inactive") }, onActive: { _ in log.add("\(name) active") },
            onBackground: { _ in log.add("\(name) background") }, onForeground: { _ in log.add("\(name) foreground") })
    }

    /// Runs `body`, and moves the clock step by step until `body` has ended. The clock stands still while any thread of
    /// the manager is busy, except threads that `blockade` blocks: on a busy machine those threads run late, and a
    /// manual clock does not wait for them.
    package func whileTimePasses<Result: Sendable>(
        beside blockade: Blockade = Blockade(), _ body: @escaping @Sendable () async throws -> Result
    ) async throws -> Result {
        let task = Task { try await body() }
        let done = Counter()
        Task {
            _ = try? await task.value
            done.add(1)
        }
        await until("the end of the body") {
            guard done.value == 0 else { return true }
            // In this order: a blocked thread was busy before.
            let held = blockade.count
            if manager.parts.threads.busy == held { clock.advance(by: ManualClock.step) }
            return false
        }
        return try await task.value
    }
}

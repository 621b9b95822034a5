package import Plimsoll
import PlimsollLifecycle
package import PlimsollTesting
import Synchronization
package import Testing

/// A manager that runs on a scripted source and a manual clock for as long as a test's body does.
package struct RunningManager {
    package let manager: ResourceManager
    package let source: ScriptedPressureSource
    package let clock: ManualClock
    package let exits: Exits

    package static func run(
        policy: PressurePolicy = .standard, requests: BudgetRegistry = .process,
        onTurn: (@Sendable (PressureReading, PressureAssessment) -> Void)? = nil,
        _ body: @Sendable @escaping (RunningManager) async throws -> Void
    ) async throws {
        let source = ScriptedPressureSource(), clock = ManualClock(), exits = Exits()
        let manager = ResourceManager(source: source, policy: policy, time: clock.timekeeper, requests: requests, onTurn: onTurn) {
            exits.add($0, $1)
        }
        _ = Lifecycle(manager)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            try await body(RunningManager(manager: manager, source: source, clock: clock, exits: exits))
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    /// Pushes a reading with `available` bytes of 1 GiB left, and waits until the loop has seen the reading.
    package func available(_ available: ByteCount, after step: Duration = .zero) async {
        await turn(after: step) { source.push(usage: .gibibytes(1) - available, limit: .gibibytes(1)) }
    }

    /// Moves the clock, calls `push`, and waits until the loop has seen both in one turn.
    package func turn(after step: Duration, _ push: () -> Void) async {
        await source.whileIdle {
            clock.advance(by: step)
            push()
        }
        await source.waitUntilIdle()
    }

    /// The reports from now on.
    package var comingReports: AsyncStream<ActionReport> {
        AsyncStream { continuation in manager.onReport { continuation.yield($0) } }
    }

    /// Waits until `condition` holds. The loop turns freely meanwhile.
    package func until(_ condition: () -> Bool, sourceLocation: SourceLocation = #_sourceLocation) async {
        await TestSupport.until(sourceLocation: sourceLocation, condition)
    }

    package final class Exits: Sendable {
        private let all = Mutex<[(Int32, String)]>([])
        package init() {}

        package func add(_ status: Int32, _ line: String) { all.withLock { $0.append((status, line)) } }
        package var first: (status: Int32, line: String)? { all.withLock { $0.first } }
        package var count: Int { all.withLock { $0.count } }
    }
}

import Plimsoll
import PlimsollDemos
import PlimsollLifecycle
import PlimsollTesting
import Synchronization

/// Measures background tasks: one from begin to end, a million alive, ten thousand that are asked to stop.
final class TaskBench: Sendable {
    private final class Reference: Sendable {}

    private static let operations = 100_000
    private let manager = ResourceManager(source: ScriptedPressureSource())
    private let reference = Reference()

    // MARK: Beginning and ending

    /// Returns the processor time from begin to end of one task, in nanoseconds. `plain` uses a handler that captures
    /// nothing, `capturing` one that captures a reference. `beside` is `plain` while a second thread does the same.
    /// The cases alternate, so that a disturbance affects all alike. All three are medians.
    func beginAndEnd(rounds: Int) -> (plain: Double, capturing: Double, beside: Double) {
        var times: [[Double]] = [[], [], []]
        for _ in 0..<rounds {
            times[0].append(time { plain() })
            times[1].append(time { capturing() })
            times[2].append(beside { [self] in plain() })
        }
        let medians = times.map { median($0) ?? .nan }
        return (medians[0], medians[1], medians[2])
    }

    private func time(_ body: () -> Void) -> Double {
        let before = SteadyClock.thread
        body()
        return (SteadyClock.thread - before).inSeconds / Double(Self.operations) * 1e9
    }

    private func beside(_ body: @escaping @Sendable () -> Void) -> Double {
        let flags = Flags()
        let other = PlainThread {
            flags.isThere.store(true, ordering: .relaxed)
            while !flags.isOver.load(ordering: .relaxed) { body() }
        }
        while other != nil, !flags.isThere.load(ordering: .relaxed) {}
        defer {
            flags.isOver.store(true, ordering: .relaxed)
            other?.join()
        }
        return time(body)
    }

    // Relaxed ordering: no data is published through these flags.
    private final class Flags: Sendable {
        let isThere = Atomic<Bool>(false)
        let isOver = Atomic<Bool>(false)
    }

    private func plain() {
        for _ in 0..<Self.operations { manager.beginBackgroundTask("bench") { task, _ in task.end() }.end() }
    }

    private func capturing() {
        let reference = reference
        for _ in 0..<Self.operations {
            manager.beginBackgroundTask("bench") { task, _ in withExtendedLifetime(reference) { task.end() } }.end()
        }
    }

    // MARK: Many

    struct Footprint: Codable {
        /// Resident memory per live task: token, handler and registry entry.
        var bytes: Double
    }

    /// Measures the memory of live tasks. Call this in a separate process, so that nothing else is counted.
    func footprint(count: Int) -> Footprint {
        manager.beginBackgroundTask("first") { task, _ in task.end() }.end()
        let before = VolatileFootprint.resident
        var tasks: ContiguousArray<BackgroundTask> = []
        tasks.reserveCapacity(count)
        let reference = reference
        for _ in 0..<count {
            tasks.append(
                manager.beginBackgroundTask("bench") { task, _ in withExtendedLifetime(reference) { task.end() } })
        }
        let grown = VolatileFootprint.resident - before
        precondition(tasks.allSatisfy(\.isActive))
        for task in tasks { task.end() }
        return Footprint(bytes: Double(grown) / Double(count))
    }

    /// Measures in a separate process.
    static func footprintInChild(count: Int) throws -> Double {
        let child = try ChildProcess(
            ChildProcess.itself, ["plimsoll-bench", "_tasks-rss", "--count", "\(count)"], readsOutput: true)
        guard child.waitForEnd() == .exited(0), let line = child.output?.lines().first else {
            throw Failure.failed("the process that begins tasks ended without a result")
        }
        return try JSONLine.decode(Footprint.self, from: line).bytes
    }

    // MARK: Asking to stop

    /// Returns the median time in milliseconds from asking `count` tasks to stop until the last handler has started.
    /// `blocking` more tasks have handlers that block.
    func expire(count: Int, blocking: Int = 0, rounds: Int) -> Double {
        median((0..<rounds).map { _ in expireOnce(count, blocking) }) ?? .nan
    }

    // Relaxed ordering: the values are read after all handlers have ended.
    private final class Arrivals: Sendable {
        let count = Atomic<Int>(0)
        let last = Mutex(Duration.zero)
        let release = Atomic<Bool>(false)
    }

    private func expireOnce(_ count: Int, _ blocking: Int) -> Double {
        let arrivals = Arrivals()
        let blocked = (0..<blocking).map { _ in
            manager.beginBackgroundTask("blocked") { task, _ in
                while !arrivals.release.load(ordering: .relaxed) { SteadyClock.sleep(.milliseconds(1)) }
                task.end()
            }
        }
        let tasks = (0..<count).map { _ in
            manager.beginBackgroundTask("quick") { task, _ in
                if arrivals.count.wrappingAdd(1, ordering: .relaxed).newValue == count {
                    arrivals.last.withLock { $0 = SteadyClock.now }
                    arrivals.release.store(true, ordering: .relaxed)
                }
                task.end()
            }
        }
        let began = SteadyClock.now
        manager.expireBackgroundTasks(.operator, within: .seconds(60))
        withExtendedLifetime((blocked, tasks)) {}
        return (arrivals.last.withLock { $0 } - began).milliseconds
    }
}

import Synchronization

/// What all exclusive resources of a process stand on: its time, and whether it may hold anything now.
final class ExclusiveGround: Sendable {
    private struct State {
        var violations: [ExclusiveResourceError] = []
        var violationCount = 0
    }

    private let state = Mutex(State())
    private let time: Timekeeper
    private let heartbeat: Heartbeat
    // What was seen when stock was last taken. Relaxed: who sees an old number doubts once more.
    private let settledAsleep: Atomic<Int64>
    private let settledGaps: Atomic<UInt64>
    /// Relaxed: it refuses whoever comes late enough to see it; the drain waits for those who came before.
    private let closed = Atomic<Bool>(false)
    /// How often connections have become doubtful. Relaxed: a number that only grows and stands for itself.
    private let connections = Atomic<UInt64>(1)

    private static let mostViolations = 64

    init(time: Timekeeper, heartbeat: Heartbeat) {
        self.time = time
        self.heartbeat = heartbeat
        settledAsleep = Atomic(time.asleep().inNanoseconds)
        settledGaps = Atomic(heartbeat.gaps)
    }

    /// Time that goes on whatever happens to this process: what leases are counted by (`CLOCK_BOOTTIME`).
    var boottime: Duration { time.elapsed() + time.asleep() }
    /// Time without freezes.
    var running: Duration { heartbeat.running }

    var isClosed: Bool { closed.load(ordering: .relaxed) }
    func setClosed(_ isClosed: Bool) { closed.store(isClosed, ordering: .relaxed) }

    /// Whether the process has been frozen, or its host asleep, and nobody has taken stock yet: until then nothing known from before may be relied upon.
    var isDoubtful: Bool {
        heartbeat.isLate || heartbeat.gaps != settledGaps.load(ordering: .relaxed)
            || time.asleep().inNanoseconds - settledAsleep.load(ordering: .relaxed) > Heartbeat.tolerance.inNanoseconds
    }

    /// Stock is taken by `body`. A gap that ends meanwhile leaves it doubtful.
    func takeStock(_ body: () -> Void) {
        let (gaps, asleep) = (heartbeat.gaps, time.asleep().inNanoseconds)
        body()
        settledAsleep.store(asleep, ordering: .relaxed)
        settledGaps.store(gaps, ordering: .relaxed)
    }

    var connectionEpoch: UInt64 { connections.load(ordering: .relaxed) }
    func suspectConnections() { connections.add(1, ordering: .relaxed) }

    func violated(_ error: ExclusiveResourceError) {
        state.withLock { state in
            state.violationCount += 1
            if state.violations.count >= Self.mostViolations { state.violations.removeFirst() }
            state.violations.append(error)
        }
    }

    var violations: [ExclusiveResourceError] { state.withLock { $0.violations } }
    var violationCount: Int { state.withLock { $0.violationCount } }
}

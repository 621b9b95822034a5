import Plimsoll
import Synchronization

/// The shared state of all exclusive resources of a process: clocks, and whether the process may hold any resource
/// now.
final class ExclusiveGround: Sendable {
    private struct State {
        var violations: [ExclusiveResourceError] = []
        var violationCount = 0
    }

    private let state = Mutex(State())
    private let time: Timekeeper
    private let heartbeat: Heartbeat
    // The values at the last taking of stock. Relaxed: a thread that reads an old value only doubts once more.
    private let settledAsleep: Atomic<Int64>
    private let settledGaps: Atomic<UInt64>
    /// Relaxed: a late caller sees the flag and is refused; the drain waits for earlier callers.
    private let closed = Atomic<Bool>(false)
    /// The number of times that connections have become doubtful. Relaxed: a single independent number that only
    /// grows.
    private let connections = Atomic<UInt64>(1)

    private static let mostViolations = 64

    init(time: Timekeeper, heartbeat: Heartbeat) {
        self.time = time
        self.heartbeat = heartbeat
        settledAsleep = Atomic(time.asleep().inNanoseconds)
        settledGaps = Atomic(heartbeat.gaps)
    }

    /// The time on `CLOCK_BOOTTIME`, which also runs while the process is frozen or the host asleep. Leases are counted
    /// by this clock.
    var boottime: Duration { time.elapsed() + time.asleep() }
    /// The running time, without freezes.
    var running: Duration { heartbeat.running }

    var isClosed: Bool { closed.load(ordering: .relaxed) }
    func setClosed(_ isClosed: Bool) { closed.store(isClosed, ordering: .relaxed) }

    /// True if the process has been frozen, or the host asleep, and stock has not been taken yet. Until then, no
    /// earlier knowledge is reliable.
    var isDoubtful: Bool {
        heartbeat.isLate || heartbeat.gaps != settledGaps.load(ordering: .relaxed)
            || time.asleep().inNanoseconds - settledAsleep.load(ordering: .relaxed) > Heartbeat.tolerance.inNanoseconds
    }

    /// Takes stock by running `body`. If a gap ends meanwhile, the state stays doubtful.
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

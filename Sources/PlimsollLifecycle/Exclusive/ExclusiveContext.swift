import Plimsoll
import Synchronization

/// The shared state of all exclusive resources of a process: clocks, and whether the process may hold any resource
/// now.
final class ExclusiveContext: Sendable {
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

/// An error of an exclusive resource that cannot be acquired or used.
public struct ExclusiveResourceError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The reason for the error.
    public enum Reason: Sendable, Hashable {
        /// Another resource of that name is registered.
        case duplicateName
        /// The order of release is circular: each resource is to be released after the next, the last after the
        /// first.
        case cycle([String])
        /// The process is in the background, or entering the background (C51).
        case inBackground
        /// The resource was released, or never acquired.
        case notHeld
        /// The lease has run out, or may have.
        case leaseExpired
        /// The process has just run again after a freeze or a sleep and has not taken stock yet.
        case unsettled
        /// The resource was lost or released, and acquired again since.
        case stale(epoch: UInt64, current: UInt64)
        /// The resource has no `reacquire:`.
        case cannotBeTaken
    }

    /// Name of the resource.
    public var resource: String
    /// The reason for the error.
    public var reason: Reason

    public var description: String {
        switch reason {
        case .duplicateName:
            "exclusive resource \(resource) cannot be added: there is one of that name; give it another, or cancel the first"
        case .cycle(let names):
            "exclusive resource \(resource) cannot be added: its order of release goes round, \(names.joined(separator: " after ")); drop one `after:`"
        case .inBackground:
            "exclusive resource \(resource) may not be used or taken in the background; do it after the return to the foreground"
        case .notHeld: "exclusive resource \(resource) is not held; take it with acquire()"
        case .leaseExpired:
            "the lease of exclusive resource \(resource) has run out; take it again with acquire(), and renew it in time"
        case .unsettled:
            "exclusive resource \(resource) cannot be used: the process did not run for a while and has not taken stock yet; try again"
        case .stale(let epoch, let current):
            "exclusive resource \(resource) is in epoch \(current), and this work began in \(epoch): others may have held it meanwhile; begin anew"
        case .cannotBeTaken: "exclusive resource \(resource) cannot be taken: it has no `reacquire:`; give it one"
        }
    }
}

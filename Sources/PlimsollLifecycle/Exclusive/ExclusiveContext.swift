import Plimsoll
import Synchronization

/// The shared state of all exclusive resources of a process: clocks, and whether the process may hold any resource
/// now.
final class ExclusiveContext: Sendable {
    private struct State {
        var violations: [ExclusiveResourceError] = []
        var violationCount = 0
        /// The time at which connections last became doubtful; `nil` if never.
        var suspectedAt: Duration?
    }

    private let state = Mutex(State())
    private let time: Timekeeper
    private let heartbeat: Heartbeat
    // The values at the last verification. Relaxed: a thread that reads an old value only doubts once more.
    private let verifiedAsleep: Atomic<Int64>
    private let verifiedGaps: Atomic<UInt64>
    /// Relaxed: a late caller sees the flag and is refused; the drain waits for earlier callers.
    private let closed = Atomic<Bool>(false)
    /// The number of times that connections have become doubtful. Relaxed: a single independent number that only
    /// grows.
    private let connections = Atomic<UInt64>(1)

    private static let mostViolations = 64

    init(time: Timekeeper, heartbeat: Heartbeat) {
        self.time = time
        self.heartbeat = heartbeat
        verifiedAsleep = Atomic(time.asleep().inNanoseconds)
        verifiedGaps = Atomic(heartbeat.gaps)
    }

    /// The time on `CLOCK_BOOTTIME`, which also runs while the process is frozen or the host asleep. Leases are counted
    /// by this clock.
    var boottime: Duration { time.elapsed() + time.asleep() }
    /// The running time, without freezes.
    var running: Duration { heartbeat.running }

    var isClosed: Bool { closed.load(ordering: .relaxed) }
    func setClosed(_ isClosed: Bool) { closed.store(isClosed, ordering: .relaxed) }

    /// True if the process has been frozen, or the host asleep, and no verification has followed yet. Until then, no
    /// earlier knowledge is reliable.
    var isDoubtful: Bool {
        heartbeat.isLate || heartbeat.gaps != verifiedGaps.load(ordering: .relaxed)
            || time.asleep().inNanoseconds - verifiedAsleep.load(ordering: .relaxed) > Heartbeat.tolerance.inNanoseconds
    }

    /// Verifies the resources by running `body`. If a gap ends meanwhile, the state stays doubtful.
    func verify(_ body: () -> Void) {
        let (gaps, asleep) = (heartbeat.gaps, time.asleep().inNanoseconds)
        body()
        verifiedAsleep.store(asleep, ordering: .relaxed)
        verifiedGaps.store(gaps, ordering: .relaxed)
    }

    var connectionEpoch: UInt64 { connections.load(ordering: .relaxed) }
    /// The time on `boottime` at which connections last became doubtful; `nil` if never.
    var suspectedAt: Duration? { state.withLock { $0.suspectedAt } }

    func suspectConnections() {
        let now = boottime
        state.withLock { $0.suspectedAt = now }
        connections.add(1, ordering: .relaxed)
    }

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
    enum Reason: Sendable, Hashable {
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
        /// The process has just run again after a freeze or a sleep and has not verified its resources yet.
        case unverified
        /// The resource was lost or released, and acquired again since.
        case stale(epoch: UInt64, current: UInt64)
        /// The resource has no `reacquire:`.
        case cannotBeTaken
        /// The release that an earlier way to the background had begun has failed.
        case notReleased
    }

    /// Name of the resource.
    public var resource: String
    var reason: Reason

    /// True if the process is in the background, or entering the background: try after the return.
    public var isInBackground: Bool { reason == .inBackground }
    /// True if the process has just run again after a freeze or a sleep: try again.
    public var isUnverified: Bool { reason == .unverified }
    /// True if the resource is not held any more, or was acquired again since: others may have held it meanwhile.
    public var isLost: Bool {
        if case .stale = reason { true } else { reason == .notHeld || reason == .leaseExpired }
    }

    public var description: String {
        switch reason {
        case .duplicateName:
            "cannot add exclusive resource \(resource) because another one has that name; choose another name, or cancel the first"
        case .cycle(let names):
            "cannot add exclusive resource \(resource) because its order of release is a cycle, \(names.joined(separator: " after ")); drop one `after:`"
        case .inBackground:
            "cannot use or acquire exclusive resource \(resource) because the process is in the background; retry after the return to the foreground"
        case .notHeld: "cannot use exclusive resource \(resource) because it is not held; call acquire() first"
        case .leaseExpired:
            "cannot use exclusive resource \(resource) because its lease has expired; call acquire() again, and renew the lease in time"
        case .unverified:
            "cannot use exclusive resource \(resource) because the process did not run for a while and has not yet checked its resources; retry"
        case .stale(let epoch, let current):
            "cannot use exclusive resource \(resource) because it is in epoch \(current) and this work began in \(epoch), so others may have held it meanwhile; begin again"
        case .cannotBeTaken: "cannot acquire exclusive resource \(resource) because it has no `reacquire:`; pass one"
        case .notReleased:
            "cannot release exclusive resource \(resource) because a release that was under way has failed; the next way to the background tries again"
        }
    }
}

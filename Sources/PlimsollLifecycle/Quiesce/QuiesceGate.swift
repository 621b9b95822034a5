import Plimsoll
import Synchronization

/// The extents that a set has published: one atomic word, so that they change for all members at once.
final class QuiesceBoard: Sendable {
    private let word = Atomic<UInt16>(0)

    func publish(general: QuiesceExtent, leased: QuiesceExtent) {
        // Releasing, and acquiring below: a thread that reads the new extent sees the work done before that extent
        // came into force.
        word.store(UInt16(general.bits) | UInt16(leased.bits) << 8, ordering: .releasing)
    }

    func extent(isLeased: Bool) -> QuiesceExtent {
        let word = word.load(ordering: .acquiring)
        return QuiesceExtent(bits: UInt8(truncatingIfNeeded: isLeased ? word >> 8 : word))
    }
}

/// The gate that members of one set and class of work check before they admit work.
final class QuiesceGate: Sendable {
    private let board: QuiesceBoard
    // Relaxed: the count changes under the set's lock, and members are notified afterwards.
    private let leases = Atomic<Int>(0)
    // Relaxed: the numbers only need to differ.
    private let ordinals = Atomic<UInt64>(0)
    /// The set's alarms; `nil` for a member in no set.
    let alarms: Alarms?
    private let onLate: @Sendable () -> Void

    init(_ board: QuiesceBoard = QuiesceBoard(), alarms: Alarms? = nil, onLate: @escaping @Sendable () -> Void = {}) {
        self.board = board
        self.alarms = alarms
        self.onLate = onLate
    }

    /// The extent now in force: two atomic loads.
    var extent: QuiesceExtent { board.extent(isLeased: leases.load(ordering: .relaxed) > 0) }

    /// Closes the set if a gap has ended that no thread has noticed yet (C17). Costs a clock read; do not call under
    /// a lock.
    func notice() { if let alarms, alarms.heartbeat.isLate { onLate() } }

    func addLease(_ count: Int) { leases.add(count, ordering: .relaxed) }

    /// Returns the next ordinal: the number of earlier calls.
    func nextOrdinal() -> UInt64 { ordinals.add(1, ordering: .relaxed).oldValue }

    /// Publishes the extent for the gate of a member in no set.
    func publish(_ extent: QuiesceExtent) { board.publish(general: extent, leased: extent) }
}

/// The gate that a member uses: the gate of the set, or a private gate while in no set.
final class GateSlot: Sendable {
    let own: QuiesceGate
    // Releasing and acquiring: a reader sees the gate fully initialised. `kept` owns every gate that the pointer may
    // refer to.
    private let pointer: Atomic<Unmanaged<QuiesceGate>>
    /// Every gate that the member ever used, since the pointer is read without a lock. Few: a set has one for each
    /// class of work.
    private let kept: Mutex<[QuiesceGate]>

    init() {
        own = QuiesceGate()
        pointer = Atomic(Unmanaged.passUnretained(own))
        kept = Mutex([own])
    }

    var current: QuiesceGate { pointer.load(ordering: .acquiring).takeUnretainedValue() }

    func move(to gate: QuiesceGate) {
        kept.withLock { kept in
            if !kept.contains(where: { $0 === gate }) { kept.append(gate) }
            pointer.store(Unmanaged.passUnretained(gate), ordering: .releasing)
        }
    }

    func leave(_ gate: QuiesceGate) {
        kept.withLock { _ in
            guard current === gate else { return }
            own.publish(.open)
            pointer.store(Unmanaged.passUnretained(own), ordering: .releasing)
        }
    }

    /// Publishes `extent` on the member's own gate. A member in a set follows the set instead.
    func follow(_ extent: QuiesceExtent) { if current === own { own.publish(extent) } }
}

/// Work that a `ConcurrencyLimiter` has not admitted. The work never began.
public struct AdmissionRefusal: Error, Sendable, Hashable {
    package enum Reason: Sendable, Hashable {
        /// The queue of waiting callers was full. The value is the queue's capacity.
        case queueIsFull(mostWaiting: Int)
        /// The limiter was paused, and the policy refuses work while paused.
        case paused
        /// The limiter stayed paused for longer than the policy allows callers to wait.
        case pausedTooLong(Duration)
        /// The caller's patience ended.
        case waitedTooLong(Duration)
    }

    /// Name of the limiter.
    public var limiter: String
    package var reason: Reason
    /// True if the limiter was paused; false if the wait was too long, or too many callers waited.
    public var isPaused: Bool {
        switch reason {
        case .paused, .pausedTooLong: true
        case .queueIsFull, .waitedTooLong: false
        }
    }

    package init(limiter: String, reason: Reason) {
        self.limiter = limiter
        self.reason = reason
    }
}

extension AdmissionRefusal: CustomStringConvertible {
    public var description: String {
        let why =
            switch reason {
            case .queueIsFull(let most): "\(most) calls wait already; shed load earlier, or raise mostWaiting"
            case .paused:
                "the limiter is paused and refuses work then (waitingWhilePausedAtMost: .zero); retry when the process is active"
            case .pausedTooLong(let limit):
                "the limiter was paused for more than \(limit) (waitingWhilePausedAtMost:); retry when the process is active"
            case .waitedTooLong(let limit):
                "no slot became free within \(limit); retry later, or wait longer (waitingAtMost:)"
            }
        return "limiter \"\(limiter)\" cannot admit the work because \(why)"
    }
}

extension AdmissionStatus {
    init(_ member: any CountingQuiescable) {
        let statistics = member.statistics
        self.init(
            name: member.name, running: statistics.running, waiting: statistics.waiting, limit: statistics.limit,
            admitted: statistics.admitted, refused: statistics.refused,
            // A member may return any number; JSON cannot express infinity.
            refusedPerSecond: member.refusedPerSecond.flatMap { $0.isFinite ? $0 : nil },
            expired: statistics.expired, requests: member.requests)
    }
}

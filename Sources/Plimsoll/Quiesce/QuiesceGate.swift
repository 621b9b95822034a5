import Synchronization

/// The extents that a set has published: one word, so that they change for all members at once.
final class QuiesceBoard: Sendable {
    private let word = Atomic<UInt16>(0)

    func publish(general: QuiesceExtent, leased: QuiesceExtent) {
        // Releasing, and acquiring below: who sees the new extent sees what was done before it came into force.
        word.store(UInt16(general.bits) | UInt16(leased.bits) << 8, ordering: .releasing)
    }

    func extent(isLeased: Bool) -> QuiesceExtent {
        let word = word.load(ordering: .acquiring)
        return QuiesceExtent(bits: UInt8(truncatingIfNeeded: isLeased ? word >> 8 : word))
    }
}

/// Where the members of one set and class of work look before they admit anything.
final class QuiesceGate: Sendable {
    private let board: QuiesceBoard
    // Relaxed: it changes under the set's lock, and members are told afterwards.
    private let leases = Atomic<Int>(0)
    // Relaxed: numbers that differ, no more.
    private let ordinals = Atomic<UInt64>(0)
    /// The set's time; `nil` for a member by itself.
    let alarms: Alarms?
    private let onLate: @Sendable () -> Void

    init(_ board: QuiesceBoard = QuiesceBoard(), alarms: Alarms? = nil, onLate: @escaping @Sendable () -> Void = {}) {
        self.board = board
        self.alarms = alarms
        self.onLate = onLate
    }

    /// What may go on now: two atomic loads.
    var extent: QuiesceExtent { board.extent(isLeased: leases.load(ordering: .relaxed) > 0) }

    /// Closes the set if a gap has ended that nobody has noticed yet (C17). Costs a look at the clock; not under a lock.
    func notice() { if let alarms, alarms.heartbeat.isLate { onLate() } }

    func addLease(_ count: Int) { leases.add(count, ordering: .relaxed) }

    /// The number of members that have asked for theirs before.
    func nextOrdinal() -> UInt64 { ordinals.add(1, ordering: .relaxed).oldValue }

    /// For the gate of a member by itself.
    func publish(_ extent: QuiesceExtent) { board.publish(general: extent, leased: extent) }
}

/// The gate at which a member stands: its set's, or its own while it is in none.
final class GateSlot: Sendable {
    let own: QuiesceGate
    // Releasing and acquiring: the gate is seen whole. Whoever it points to is in `kept`.
    private let pointer: Atomic<Unmanaged<QuiesceGate>>
    /// Every gate it ever stood at, since the pointer is read without a lock. Few: a set has one for each class of work.
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

    /// A member in no set follows whoever tells it; in a set it follows the set.
    func follow(_ extent: QuiesceExtent) { if current === own { own.publish(extent) } }
}

/// What pauses when the process leaves the foreground and gives way when memory is short: a member of a `QuiesceSet`.
public protocol Quiescable: AnyObject, Sendable {
    /// What it is called in reports.
    var name: String { get }

    /// The class of work it serves; a lease on that class keeps it going (`QuiesceSet.lease`). `nil` for none.
    var workClass: String? { get }

    /// Go on to this extent from now on.
    ///
    /// Called by the thread that changes the extent, one call at a time, in the order of the changes, of which some may be left out. It must not
    /// block, must not wait for what runs, and does nothing if the extent is already the one in force. A member undoes what it did itself and
    /// nothing else: what somebody had paused by hand stays paused (C39).
    func quiesce(to extent: QuiesceExtent)
}

extension Quiescable {
    public var workClass: String? { nil }
}

/// A member that looks at its set's published extent with each admission, so that no two members ever disagree.
protocol GatedMember: Quiescable {
    var gates: GateSlot { get }

    /// It stands at this gate from now on.
    func join(_ gate: QuiesceGate)

    /// It is in no set any more, if it still stood at this gate.
    func leave(_ gate: QuiesceGate)

    /// The extent may have changed: start what may start. Calls no user code.
    func look()
}

/// A member whose work, once admitted, goes on: what is to be saved may change until it has ended.
protocol WorkingMember: GatedMember {
    /// Whether something runs that was admitted.
    var isRunning: Bool { get }

    /// Calls `body` once nothing runs any more, at once if nothing does. On whatever thread; not under a lock.
    func whenIdle(_ body: @escaping @Sendable () -> Void)
}

extension GatedMember {
    func join(_ gate: QuiesceGate) { gates.move(to: gate) }
    func leave(_ gate: QuiesceGate) { gates.leave(gate) }
}

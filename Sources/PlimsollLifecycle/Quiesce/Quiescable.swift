package import Plimsoll

/// A member of a `QuiesceSet`: pauses when the process leaves the foreground, and gives way when memory is short.
public protocol Quiescable: AnyObject, Sendable {
    /// Name used in reports.
    var name: String { get }

    /// The class of work that the member serves; `nil` for none. A lease on the class keeps the member going
    /// (`QuiesceSet.lease`).
    var workClass: String? { get }

    /// Applies the extent `extent` from now on.
    ///
    /// Called by the thread that changes the extent, one call at a time, in the order of the changes; some changes
    /// may be left out. The call must not block, must not wait for running work, and does nothing if the extent is
    /// already in force. A member undoes only its own pause: work that was paused by hand stays paused (C39).
    func quiesce(to extent: QuiesceExtent)
}

extension Quiescable {
    public var workClass: String? { nil }
}

/// A member that reads the published extent of the set at each admission, so that no two members ever disagree.
protocol GatedMember: Quiescable {
    var gates: GateSlot { get }

    /// Moves the member to this gate.
    func join(_ gate: QuiesceGate)

    /// Removes the member from the set, if the member still uses this gate.
    func leave(_ gate: QuiesceGate)

    /// Starts pending work, as the extent may have changed. Calls no user code.
    func poll()
}

/// A member whose admitted work goes on after a pause. Until that work has ended, state to be saved may change.
protocol WorkingMember: GatedMember {
    /// True while admitted work runs.
    var isRunning: Bool { get }

    /// Calls `body` once no work runs any more, at once if the member is idle. The call is on any thread and not
    /// under a lock.
    func whenIdle(_ body: @escaping @Sendable () -> Void)
}

extension GatedMember {
    func join(_ gate: QuiesceGate) { gates.move(to: gate) }
    func leave(_ gate: QuiesceGate) { gates.leave(gate) }
}

/// A member of the quiesce set with statistics, like a limiter. A manager's status shows the statistics of such
/// members.
package protocol CountingQuiescable: Quiescable {
    /// Current statistics. Called from any thread, occasionally. The status waits for the result, so the getter
    /// must not block.
    var statistics: ConcurrencyLimiter.Statistics { get }

    /// Requests by priority; `nil` by default, and if requests have no priority.
    var requests: RequestCounts? { get }

    /// Requests refused a second since memory became short; `nil` by default, and while memory is plentiful.
    var refusedPerSecond: Double? { get }
}

extension CountingQuiescable {
    package var requests: RequestCounts? { nil }
    package var refusedPerSecond: Double? { nil }
}

extension ConcurrencyLimiter: CountingQuiescable {}

public import Plimsoll
import Synchronization

/// A set of members that pause when the process leaves the foreground, resume afterwards, and give way when memory is
/// short (C38, C39, C82).
///
/// All members stop at once: each reads one published extent before it admits work, so no member admits more after
/// another has stopped. Then each member is notified, in the order of addition, or in the reverse order when more may
/// go on. The set resumes only members that this set paused. Running work is not interrupted. A member added later
/// takes on the extent in force.
///
/// | state | extent | members of a leased class |
/// |---|---|---|
/// | active, or a life cycle that is not driven | open | open |
/// | inactive, suspended | paused | open |
/// | background | background | open |
/// | from right before the last save at the end | paused | paused |
/// | on the way back from a freeze | held | held |
///
/// In addition, a shortage of memory narrows all members to a share.
///
/// Limits (T39): the set reaches only the members added to it. Other threads of the process, work already admitted,
/// and child processes go on. Only the control group covers those, and only a supervisor can freeze them.
public final class QuiesceSet: Sendable {
    private struct Member {
        let id: UInt64
        let member: any Quiescable
        /// The member, if the member admits work by the gate itself.
        let gated: (any GatedMember)?
        let gate: QuiesceGate
        let calls: CallGate
        var notified: QuiesceExtent
    }

    private struct Lease {
        var name: String
        var workClass: String
    }

    private struct State {
        var inputs = QuiesceInputs()
        /// The members in the order of addition, which is also the order of their ids.
        var members: [Member] = []
        var leases: [UInt64: Lease] = [:]
        var nextID: UInt64 = 0
        var gates: [String: QuiesceGate] = [:]
        /// True while a thread notifies members. That thread also delivers changes made meanwhile.
        var isNotifying = false
        /// The number of changes since all members were last up to date. After two, the extent of a member may have
        /// fallen and risen without a notification.
        var changes = 0

        mutating func takeID() -> UInt64 {
            defer { nextID += 1 }
            return nextID
        }

        /// Returns the first member from that id on whose last notified extent exceeds the extent in force.
        func firstNarrowed(from id: UInt64) -> Int? {
            var index = index(from: id)
            while index < members.count, !(members[index].gate.extent < members[index].notified) { index += 1 }
            return index < members.count ? index : nil
        }

        /// Returns the last member before that id whose last notified extent is below the extent in force.
        func lastWidened(before id: UInt64) -> Int? {
            var index = index(from: id) - 1
            while index >= 0, !(members[index].gate.extent > members[index].notified) { index -= 1 }
            return index >= 0 ? index : nil
        }

        /// Returns the first member from that id on that keeps the work which a closed gate held back.
        func firstGated(from id: UInt64) -> Int? {
            var index = index(from: id)
            while index < members.count, members[index].gated == nil { index += 1 }
            return index < members.count ? index : nil
        }

        /// Returns the position of the member with that id, or of the next later one.
        func index(from id: UInt64) -> Int {
            var (low, high) = (0, members.count)
            while low < high {
                let middle = (low + high) / 2
                if members[middle].id < id { low = middle + 1 } else { high = middle }
            }
            return low
        }
    }

    let alarms: Alarms
    private let board = QuiesceBoard()
    private let state = Mutex(State())

    init(alarms: Alarms) { self.alarms = alarms }

    /// Creates a set without a life cycle, which resumes at once after a gap.
    package convenience init(time: Timekeeper) {
        self.init(alarms: Alarms(time: time, heartbeat: Heartbeat(time: time)))
        alarms.whenGapEnds { [weak self] _ in
            self?.close()
            self?.open()
            self?.alarms.release()
        }
    }

    deinit {
        // A member that outlives the set is not paused by the set.
        for entry in state.withLock({ $0.members }) { Self.free(entry) }
    }

    // MARK: Members

    /// Adds `member` and keeps it until the registration is cancelled. When the cancellation returns, the member is
    /// `open` again.
    ///
    /// Limiters, tickers, knobs and similar members belong to one set at a time: the set they were added to last.
    @discardableResult
    public func add(_ member: some Quiescable) -> Registration {
        let calls = CallGate(), gated = member as? any GatedMember
        let (id, gate) = state.withLock { state in
            let gate = findGate(of: member.workClass, &state), id = state.takeID()
            state.members.append(
                Member(id: id, member: member, gated: gated, gate: gate, calls: calls, notified: .open))
            // The extent in force need not be `open`.
            state.changes += 1
            return (id, gate)
        }
        gated?.join(gate)
        gated?.poll()
        notify()
        return Registration(calls) { [weak self] in self?.remove(id) }
    }

    private func remove(_ id: UInt64) {
        let removed = state.withLock { state in
            let index = state.index(from: id)
            return index < state.members.count && state.members[index].id == id ? state.members.remove(at: index) : nil
        }
        guard let entry = removed else { return }
        entry.calls.close()
        Self.free(entry)
    }

    private static func free(_ entry: Member) {
        if let gated = entry.gated {
            gated.leave(entry.gate)
            gated.poll()
        } else if entry.notified != .open {
            entry.member.quiesce(to: .open)
        }
    }

    private func findGate(of workClass: String?, _ state: inout State) -> QuiesceGate {
        // Members without a class share a gate that never has a lease.
        let key = workClass.map { "=" + $0 } ?? ""
        if let gate = state.gates[key] { return gate }
        let gate = QuiesceGate(board, alarms: alarms) { [weak self] in self?.foundLate() }
        state.gates[key] = gate
        return gate
    }

    /// The names of the members, in the order of addition.
    public var members: [String] { state.withLock { $0.members.map(\.member) }.map(\.name) }

    /// The members that count the work they admit, in the order of addition.
    package var countingMembers: [any CountingQuiescable] {
        state.withLock { $0.members.map(\.member) }.compactMap { $0 as? any CountingQuiescable }
    }

    /// The paused members that still run work admitted before, in the order of addition.
    var pausedWorkers: [any WorkingMember] {
        let members = state.withLock { $0.members.map(\.member) }
        return members.compactMap { $0 as? any WorkingMember }.filter {
            $0.gates.current.extent.isPaused && $0.isRunning
        }
    }

    /// True if the set has no members.
    var isEmpty: Bool { state.withLock { $0.members.isEmpty } }

    /// Returns the extent for members of that class of work. For code that admits work itself and is no member.
    public func extent(for workClass: String? = nil) -> QuiesceExtent {
        let gate = state.withLock { findGate(of: workClass, &$0) }
        gate.notice()
        return gate.extent
    }

    // MARK: Leases

    /// Keeps members of one class of work going while others are paused, until the registration is cancelled (C34). A
    /// process that terminates stops leased classes too, before the last save (C22).
    ///
    /// - Parameters:
    ///   - name: name of the part of the program that needs the work, for reports.
    ///   - workClass: only class that the lease admits. Other classes are neither opened nor closed.
    public func lease(_ name: String, admitting workClass: String) -> Registration {
        let id = state.withLock { state in
            let id = state.takeID()
            state.leases[id] = Lease(name: name, workClass: workClass)
            findGate(of: workClass, &state).addLease(1)
            state.changes += 1
            return id
        }
        notify()
        return Registration(CallGate()) { [weak self] in self?.endLease(id) }
    }

    private func endLease(_ id: UInt64) {
        let ended = state.withLock { state in
            guard let lease = state.leases.removeValue(forKey: id) else { return false }
            findGate(of: lease.workClass, &state).addLease(-1)
            state.changes += 1
            return true
        }
        if ended { notify() }
    }

    /// The leases in force, oldest first, each with name and class of work.
    public var leases: [(name: String, workClass: String)] {
        state.withLock { $0.leases.sorted { $0.key < $1.key }.map { ($0.value.name, $0.value.workClass) } }
    }

    // MARK: Inputs of the extent

    /// Sets the state of the life cycle.
    package func setState(_ lifecycle: LifecycleState) { change { $0.state = lifecycle } }

    /// Sets the pressure level. `isQuiescing` holds from the ladder's rung `quiesce` until the level is normal again.
    package func setPressure(_ level: PressureLevel, isQuiescing: Bool) {
        change { inputs in
            inputs.level = level
            inputs.isQuiescing = isQuiescing
        }
    }

    /// Stops all admission after a gap, until `open` is called for that gap and every other one.
    package func close() { change { $0.gaps += 1 } }

    /// Resumes admission once the way back from a gap is complete, unless another gap has ended meanwhile.
    package func open() {
        change { inputs in
            inputs.gaps = max(0, inputs.gaps - 1)
            inputs.isLate = false
        }
    }

    /// Stops all admission until the revocation of credentials has ended.
    func beginRevocation() { change { $0.revocations += 1 } }

    func endRevocation() { change { $0.revocations -= 1 } }

    private func change(_ body: (inout QuiesceInputs) -> Void) {
        state.withLock { state in
            body(&state.inputs)
            publish(&state)
        }
        notify()
    }

    private func publish(_ state: inout State) {
        state.changes += 1
        board.publish(general: state.inputs.extent(isLeased: false), leased: state.inputs.extent(isLeased: true))
    }

    /// Stops admission when a member notices the end of a gap before the responsible thread does.
    ///
    /// Admission stays stopped until that thread has checked the heartbeat; by then the thread has called `close`.
    private func foundLate() {
        let isFirst = state.withLock { state in
            guard !state.inputs.isLate else { return false }
            state.inputs.isLate = true
            publish(&state)
            return true
        }
        guard isFirst else { return }
        // Due at once, and called after the check of the heartbeat.
        alarms.set(.deadline, after: .zero) { [weak self] in self?.change { $0.isLate = false } }
    }

    // MARK: Notifying members

    /// Brings every member to the extent in force. If another thread is already notifying, that thread goes on until
    /// all members are up to date.
    private func notify() {
        let begins = state.withLock { state in
            guard !state.isNotifying else { return false }
            state.isNotifying = true
            return true
        }
        guard begins else { return }
        var pass = NotificationPass()
        while let call = state.withLock({ pass.next(in: &$0) }) {
            _ = call.entry.calls.call { call.entry.member.quiesce(to: call.extent) }
        }
    }

    /// The order of notification: first the members that get less, in the order of addition, then those that get
    /// more, in reverse. Repeats until all members are up to date.
    ///
    /// A change made during a notification may undo another one. The extents then are as the members last heard, but
    /// work may wait that came in between. So the members that keep such work are notified once more.
    ///
    /// Allocates nothing, because memory shortages are notified on this path.
    private struct NotificationPass {
        private enum Phase { case narrowing, widening, waking }

        private var phase = Phase.narrowing
        /// The next id to check; when widening, only ids below this one remain.
        private var bound: UInt64 = 0
        private var hasNotified = false

        /// Returns the next member, marked as notified. `nil` when all are up to date; the next change then starts a
        /// new pass.
        mutating func next(in state: inout State) -> (entry: Member, extent: QuiesceExtent)? {
            while true {
                let index: Int? =
                    switch phase {
                    case .narrowing: state.firstNarrowed(from: bound)
                    case .widening: state.lastWidened(before: bound)
                    case .waking: state.firstGated(from: bound)
                    }
                if let index {
                    bound = state.members[index].id + (phase == .widening ? 0 : 1)
                    if phase != .waking {
                        hasNotified = true
                        state.members[index].notified = state.members[index].gate.extent
                    }
                    return (state.members[index], state.members[index].notified)
                }
                if phase == .narrowing {
                    (phase, bound) = (.widening, .max)
                } else if phase == .waking || hasNotified {
                    (phase, bound, hasNotified) = (.narrowing, 0, false)
                } else if exchange(&state.changes, 0) > 1 {
                    (phase, bound) = (.waking, 0)
                } else {
                    state.isNotifying = false
                    return nil
                }
            }
        }
    }
}

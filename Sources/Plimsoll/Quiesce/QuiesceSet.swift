import Synchronization

/// What pauses when the process leaves the foreground, goes on when it is back, and gives way when memory is short (C38, C39, C82).
///
/// Members stop at once: they all look at one published extent before they admit anything, so none admits more when another has stopped. Then each
/// is told in the order of addition, and in the reverse order when more may go on; only what this set paused is resumed. Nothing that runs is
/// interrupted, and a member added later takes on the extent in force.
///
/// | state | extent | members of a leased class |
/// |---|---|---|
/// | active, or a life cycle nobody drives | open | open |
/// | inactive, suspended | paused | open |
/// | background | background | open |
/// | not running any more | paused | paused |
/// | on the way back from a freeze | held | held |
///
/// On top of that a shortage of memory narrows all of them to a share.
///
/// Its limits (T39): it reaches what was added to it and nothing else. Other threads of the process, what has been admitted already, and child
/// processes go on; only the control group knows of those, and only a supervisor can freeze them.
public final class QuiesceSet: Sendable {
    private struct Member {
        let id: UInt64
        let member: any Quiescable
        let gate: QuiesceGate
        let calls: CallGate
        var told: QuiesceExtent
    }

    private struct Lease {
        var name: String
        var workClass: String
    }

    private struct State {
        var inputs = QuiesceInputs()
        /// In the order of addition, so also of their ids.
        var members: [Member] = []
        var leases: [UInt64: Lease] = [:]
        var nextID: UInt64 = 0
        var gates: [String: QuiesceGate] = [:]
        /// Whether a thread is telling members: changes made meanwhile are its business too.
        var isTelling = false

        mutating func takeID() -> UInt64 {
            defer { nextID += 1 }
            return nextID
        }

        /// The first member from that id on that has been told more than is in force.
        func firstNarrowed(from id: UInt64) -> Int? {
            var index = index(from: id)
            while index < members.count, !(members[index].gate.extent < members[index].told) { index += 1 }
            return index < members.count ? index : nil
        }

        /// The last member before that id that has been told less than is in force.
        func lastWidened(before id: UInt64) -> Int? {
            var index = index(from: id) - 1
            while index >= 0, !(members[index].gate.extent > members[index].told) { index -= 1 }
            return index >= 0 ? index : nil
        }

        /// The position of the member of that id, or of the next later one.
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

    /// A set without a life cycle, which finds its way back from a gap at once.
    package convenience init(time: Timekeeper) {
        self.init(alarms: Alarms(time: time, heartbeat: Heartbeat(time: time)))
        alarms.whenGapEnds { [weak self] _ in
            self?.close()
            self?.open()
            self?.alarms.release()
        }
    }

    deinit {
        // Whoever outlives the set is not paused by it.
        for entry in state.withLock({ $0.members }) { Self.free(entry) }
    }

    // MARK: Members

    /// Takes `member` in; it is kept until the registration is cancelled, and has gone back to `open` when that returns.
    ///
    /// Limiters, tickers, knobs and the like stand in one set at a time: the last they were added to.
    @discardableResult
    public func add(_ member: some Quiescable) -> Registration {
        let calls = CallGate(), gated = member as? any GatedMember
        let (id, gate) = state.withLock { state in
            let gate = findGate(of: member.workClass, &state), id = state.takeID()
            state.members.append(Member(id: id, member: member, gate: gate, calls: calls, told: .open))
            return (id, gate)
        }
        gated?.join(gate)
        gated?.look()
        tell()
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
        if let gated = entry.member as? any GatedMember {
            gated.leave(entry.gate)
            gated.look()
        } else if entry.told != .open {
            entry.member.quiesce(to: .open)
        }
    }

    private func findGate(of workClass: String?, _ state: inout State) -> QuiesceGate {
        // No class is a class too: one that has no lease.
        let key = workClass.map { "=" + $0 } ?? ""
        if let gate = state.gates[key] { return gate }
        let gate = QuiesceGate(board, alarms: alarms) { [weak self] in self?.foundLate() }
        state.gates[key] = gate
        return gate
    }

    /// The names of the members, in the order of addition.
    public var members: [String] { state.withLock { $0.members.map(\.member) }.map(\.name) }

    /// Those that count what they admit, in the order of addition.
    package var countingMembers: [any CountingQuiescable] {
        state.withLock { $0.members.map(\.member) }.compactMap { $0 as? any CountingQuiescable }
    }

    /// Those that are paused and still do what they had admitted before, in the order of addition.
    var pausedWorkers: [any WorkingMember] {
        let members = state.withLock { $0.members.map(\.member) }
        return members.compactMap { $0 as? any WorkingMember }.filter { $0.gates.current.extent.isPaused && $0.isRunning }
    }

    /// Whether nothing was added.
    var isEmpty: Bool { state.withLock { $0.members.isEmpty } }

    /// What may go on now for members of that class of work: for what admits work itself and is no member.
    public func extent(for workClass: String? = nil) -> QuiesceExtent {
        let gate = state.withLock { findGate(of: workClass, &$0) }
        gate.notice()
        return gate.extent
    }

    // MARK: Leases

    /// Keeps members of one class of work going while others are paused, until it is cancelled (C34).
    ///
    /// - Parameters:
    ///   - name: who has declared the need, for reports.
    ///   - workClass: the only class it admits. Other classes are neither opened nor closed by it.
    public func lease(_ name: String, admitting workClass: String) -> Registration {
        let id = state.withLock { state in
            let id = state.takeID()
            state.leases[id] = Lease(name: name, workClass: workClass)
            findGate(of: workClass, &state).addLease(1)
            return id
        }
        tell()
        return Registration(CallGate()) { [weak self] in self?.endLease(id) }
    }

    private func endLease(_ id: UInt64) {
        let ended = state.withLock { state in
            guard let lease = state.leases.removeValue(forKey: id) else { return false }
            findGate(of: lease.workClass, &state).addLease(-1)
            return true
        }
        if ended { tell() }
    }

    /// The leases in force, oldest first: who has one, and for which class of work.
    public var leases: [(name: String, workClass: String)] {
        state.withLock { $0.leases.sorted { $0.key < $1.key }.map { ($0.value.name, $0.value.workClass) } }
    }

    // MARK: What the extent follows

    /// The life cycle is in this state.
    package func setState(_ lifecycle: LifecycleState) { change { $0.state = lifecycle } }

    /// Memory is so short; `isQuiescing` from the ladder's rung `quiesce` until the level is normal again.
    package func setPressure(_ level: PressureLevel, isQuiescing: Bool) {
        change { inputs in
            inputs.level = level
            inputs.isQuiescing = isQuiescing
        }
    }

    /// A gap has ended: nobody is admitted until `open`.
    package func close() { change { $0.isClosed = true } }

    /// The way back from a gap is done.
    package func open() {
        change { inputs in
            inputs.isClosed = false
            inputs.isLate = false
        }
    }

    /// Credentials are being revoked: nobody is admitted until that has ended.
    func beginRevocation() { change { $0.revocations += 1 } }

    /// They have been.
    func endRevocation() { change { $0.revocations -= 1 } }

    private func change(_ body: (inout QuiesceInputs) -> Void) {
        state.withLock { state in
            body(&state.inputs)
            publish(state.inputs)
        }
        tell()
    }

    private func publish(_ inputs: QuiesceInputs) {
        board.publish(general: inputs.extent(isLeased: false), leased: inputs.extent(isLeased: true))
    }

    /// A member found that a gap has ended before the thread did whose business that is. Until that one has looked, and by then has called `close`,
    /// nobody is admitted.
    private func foundLate() {
        let isFirst = state.withLock { state in
            guard !state.inputs.isLate else { return false }
            state.inputs.isLate = true
            publish(state.inputs)
            return true
        }
        guard isFirst else { return }
        // Due at once, and called after the look at the heartbeat.
        alarms.set(.deadline, after: .zero) { [weak self] in self?.settleLate() }
    }

    private func settleLate() {
        let members = state.withLock { state in
            state.inputs.isLate = false
            publish(state.inputs)
            return state.members.map(\.member)
        }
        for member in members { (member as? any GatedMember)?.look() }
        // In case somebody was told meanwhile.
        tell()
    }

    // MARK: Telling

    /// Brings every member to the extent in force, unless a thread is at it: that one goes on until all are.
    private func tell() {
        let begins = state.withLock { state in
            guard !state.isTelling else { return false }
            state.isTelling = true
            return true
        }
        guard begins else { return }
        var pass = TellingPass()
        while let call = state.withLock({ pass.next(in: &$0) }) {
            _ = call.entry.calls.call { call.entry.member.quiesce(to: call.extent) }
        }
    }

    /// Whom to tell what: first those that get less, in the order of addition, then those that get more, in reverse; and again from the start until all know.
    ///
    /// Allocates nothing: a shortage of memory is told on this way.
    private struct TellingPass {
        private var isNarrowing = true
        /// The ids not yet looked at on this way through: from here on, or, on the way back, those before.
        private var bound: UInt64 = 0
        private var hasTold = false

        /// The next member, marked as told; `nil` when all know, and then whoever makes the next change begins anew.
        mutating func next(in state: inout State) -> (entry: Member, extent: QuiesceExtent)? {
            while true {
                let index = isNarrowing ? state.firstNarrowed(from: bound) : state.lastWidened(before: bound)
                if let index {
                    hasTold = true
                    bound = state.members[index].id + (isNarrowing ? 1 : 0)
                    state.members[index].told = state.members[index].gate.extent
                    return (state.members[index], state.members[index].told)
                }
                if isNarrowing {
                    (isNarrowing, bound) = (false, .max)
                } else if hasTold {
                    (isNarrowing, bound, hasTold) = (true, 0, false)
                } else {
                    state.isTelling = false
                    return nil
                }
            }
        }
    }
}

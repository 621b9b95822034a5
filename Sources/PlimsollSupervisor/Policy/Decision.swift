package import Plimsoll

/// An action on a unit.
package enum UnitAction: Sendable, Hashable {
    /// Notify the unit of the pressure level.
    case warn(PressureLevel)
    /// Ask the unit to release this many bytes.
    case release(ByteCount)
    /// Tell the unit its share of the memory for caches, and ask for what memory is worth to its caches.
    case share(ProcessShare)
    /// Tell the unit to go to the background. The unit then has 5 s to become ready to be frozen.
    case background
    /// Freeze the unit.
    case suspend
    /// Thaw the unit.
    case resume(ResumeReason)
    /// Reclaim this many bytes from the frozen unit through the kernel.
    case reclaim(ByteCount)
    /// Throttle the unit's processor and disk use (`true`), or restore the shares of its role (`false`).
    case throttle(Bool)
    case end(Ending)
    case start

    package enum ResumeReason: String, Sendable, Hashable { case room, keepAlive = "keep-alive", ending }

    package enum Ending: Sendable, Hashable {
        /// Kill the frozen unit at once; its state is saved. SIGKILL reaches a frozen process, SIGTERM would wait for
        /// the thaw (K33).
        case killSuspended
        /// Thaw the unit, ask the unit to end, and kill when the grace time is over.
        case ask(grace: Duration)
        /// Kill at once.
        case kill
    }
}

extension UnitAction {
    /// The kinds of action, without amounts.
    package enum Kind: String, Sendable, Hashable, CaseIterable {
        case warn, release, share, background, suspend, resume, reclaim, throttle, end, start
    }

    package var kind: Kind {
        switch self {
        case .warn: .warn
        case .release: .release
        case .share: .share
        case .background: .background
        case .suspend: .suspend
        case .resume: .resume
        case .reclaim: .reclaim
        case .throttle: .throttle
        case .end: .end
        case .start: .start
        }
    }
}

/// An action to be carried out on a unit, and the reason.
package struct Decision: Sendable, Hashable {
    package var at: Duration
    package var unit: String
    package var action: UnitAction
    /// One sentence with the figures behind the decision.
    package var reason: String
    /// True if the decision is only reported and not carried out.
    package var isDryRun: Bool

    package init(at: Duration, unit: String, action: UnitAction, reason: String, isDryRun: Bool = false) {
        (self.at, self.unit, self.action, self.reason, self.isDryRun) = (at, unit, action, reason, isDryRun)
    }
}

/// The result of a decision.
package struct Outcome: Sendable, Hashable {
    package var decision: Decision
    /// Time at which the action was completed or abandoned.
    package var at: Duration
    /// Decrease of the unit's charge since the decision.
    package var relief: ByteCount
    /// Description of the failure; `nil` on success.
    package var failure: String?

    package init(_ decision: Decision, at: Duration, relief: ByteCount, failure: String? = nil) {
        (self.decision, self.at, self.relief, self.failure) = (decision, at, relief, failure)
    }
}

/// A unit as seen by one evaluation.
struct UnitSnapshot {
    let report: UnitReport
    var memory: UnitHistory
    /// The importance of the unit, raised to that of the most important foreground unit that depends on this one.
    var importance: Int
    /// True if the unit is in the foreground, or a foreground unit depends on this one.
    var isInFront: Bool
    /// True if the unit was relaunched soon after its last end. Ending such a unit again frees memory only for a
    /// moment.
    var comesBack: Bool
    /// True if this evaluation already made a decision for the unit.
    var isTaken = false

    init(_ report: UnitReport, memory: UnitHistory, policy: SupervisorPolicy) {
        (self.report, self.memory) = (report, memory)
        importance = min(1000, max(0, report.importance))
        isInFront = report.role == .foreground && report.backgroundSince == nil
        comesBack = report.relaunchGap.map { $0 < policy.relaunchGap } ?? false
    }

    var name: String { report.name }
    /// True if no decision was made in this evaluation and no earlier action is pending.
    var isFree: Bool { !isTaken && memory.pending == nil }
    var runs: Bool { report.state == .running || report.state == .starting }
    var isReachable: Bool { runs || report.state == .leaving }
    var canEnd: Bool { report.state != .stopped && report.state != .ending }

    func canEnd(at now: Duration) -> Bool { canEnd && !memory.hasFailed(.kill, at: now) }

    /// Returns true if the unit can be frozen, as far as is known.
    func canSuspend(at now: Duration) -> Bool {
        report.suspension != .never && !report.exitsOnSuspend && !report.holdsLocks
            && !memory.hasFailed(.suspend, at: now)
    }

    /// The deadline for the unit to become ready to be frozen, including its background tasks (T33).
    func leaveEnd(_ policy: SupervisorPolicy) -> Duration {
        let end = report.since + policy.leaveTime
        guard report.tokens > 0 else { return end }
        return max(end, min(report.tokensEnd ?? .seconds(Int64.max / 4), end + policy.graceExtension))
    }

    /// Time from SIGTERM to SIGKILL. Live background tasks extend this time, up to a bound.
    func grace(_ policy: SupervisorPolicy, at now: Duration) -> Duration {
        guard report.tokens > 0 else { return policy.grace }
        let wanted = report.tokensEnd.map { max(policy.grace, $0 - now) } ?? policy.grace + policy.graceExtension
        return min(wanted, policy.grace + policy.graceExtension)
    }
}

/// The order in which units are asked to end at shutdown. A unit ends after the units that depend on this one.
enum StopOrder {
    /// Returns the units that no other living unit depends on. If all living units depend on each other in a cycle,
    /// returns all of them.
    ///
    /// - Parameter living: the living units, each with its dependencies.
    static func next(_ living: [String: [String]]) -> Set<String> {
        var free = Set(living.keys)
        for (name, dependencies) in living { for needed in dependencies where needed != name { free.remove(needed) } }
        return free.isEmpty ? Set(living.keys) : free
    }

    /// Returns the number of turns needed if each unit ends when asked: 1 where there are no dependencies. The time for
    /// one turn is the whole time divided by this number.
    static func turns(_ living: [String: [String]]) -> Int {
        var left = living, turns = 0
        while !left.isEmpty {
            for name in next(left) { left[name] = nil }
            turns += 1
        }
        return max(1, turns)
    }

    /// Returns the number of turns needed after the end of one unit: those of the living units that this one needs,
    /// directly or through others.
    static func turns(after name: String, _ living: [String: [String]]) -> Int {
        var needed: [String: [String]] = [:], open = living[name] ?? []
        while let next = open.popLast() {
            guard next != name, needed[next] == nil, let dependencies = living[next] else { continue }
            needed[next] = dependencies
            open += dependencies
        }
        return needed.isEmpty ? 0 : turns(needed)
    }
}

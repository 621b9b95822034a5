import Glibc
import Plimsoll
import PlimsollLinux

/// A unit as it runs: its group, its first process, what it has said, and what is under way with it. The supervisor's thread alone uses it.
final class UnitRun {
    let id: UInt64
    var unit: ServiceUnit
    private(set) var group: UnitGroup
    let pressure: PressureSocket
    var child: Child?
    /// Those that were its first before it named another (`MAINPID`), until they have ended.
    var formers: [Child] = []
    /// What it has given to be kept for its next start.
    var store = DescriptorStore()
    private(set) var state = UnitState.stopped
    private(set) var since = Duration.zero

    // What it has said.
    var speech = UnitSpeech()
    var peer: UInt64?
    var tokens = 0
    var tokensEnd: Duration?
    var isReady = false
    var isSaved = false
    var saysLocks = false
    /// What is known of its file locks while it is on its way out.
    var locks = LockSight()
    var asksToStandSince: Duration?
    var status: String?
    /// How often it says that it is alive, and when it last did; measured while it runs (K35).
    var watchdog: Duration?
    var lastAlive = Duration.zero
    var keepAlive: Duration?

    // What it was told and what was done to it.
    var told = PressureLevel.normal
    var toldAt: Duration?
    var backgroundSince: Duration?
    var throttledSince: Duration?
    var lastWoken: Duration?
    var lastEnded: Duration?
    var relaunchGap: Duration?
    /// What was decided and has not come to its end, and the charge at that time. Numbered, as another's end may be told late.
    var underWay: (number: UInt64, decision: Decision, charge: ByteCount)?
    /// When it is killed, having been asked to end.
    var killAt: Duration?
    /// Its limits are those of somebody on the way out, and to be put back before it goes on.
    var isContained = false
    /// The role whose shares it has, if they are not those of its own.
    var shares: ServiceUnit.Role?
    /// What takes its throttle away again.
    var throttle: [LiftedLimit] = []
    /// The supervisor ended it, so its end is no failure.
    var isEndedByUs = false
    /// When it is started again, after it ended by itself.
    var startAt: Duration?
    var restarts = 0
    /// It has said that it has started, or says nothing of the kind.
    var isUp = true
    /// When it counts as failed if it has not said so.
    var startBy: Duration?
    /// When its first process was started or taken over; `nil` if that failed.
    var startedAt: Duration?
    /// When its note is written again, as that has failed.
    var noteDue: Duration?
    /// That it can't be killed was told.
    var isKillBlocked = false
    /// Its group was removed by somebody else, and is not watched any more.
    var isGroupGone = false
    /// It is not wanted any more: gone for good once it has ended.
    var isLeaving = false
    /// The unit of that name that comes when this one has gone.
    var successor: ServiceUnit?
    var charge = ByteCount.zero
    var reclaimable = ByteCount.zero

    init(id: UInt64, _ unit: ServiceUnit, _ group: UnitGroup, _ pressure: PressureSocket, isObserved: Bool = false) {
        (self.id, self.unit, self.group, self.pressure, self.isObserved) = (id, unit, group, pressure, isObserved)
        keepAlive = unit.keepAlive
    }

    func enter(_ state: UnitState, at now: Duration) {
        guard state != self.state else { return }
        locks.begin()
        (self.state, since) = (state, now)
    }

    var isAlive: Bool { state != .stopped }

    /// From now on it is in another group: somebody has removed its own.
    func move(to group: UnitGroup) {
        self.group = group
        (isGroupGone, isContained, throttledSince, throttle, shares) = (false, false, nil, [], nil)
    }

    /// It runs, or goes on with its start.
    func goOn(at now: Duration) {
        enter(isUp ? .running : .starting, at: now)
        startBy = isUp ? nil : now + (unit.startTime ?? Self.startTime)
    }

    /// As systemd has it (`DefaultTimeoutStartSec`).
    private static let startTime = Duration.seconds(90)
    /// The supervisor starts it, and so ends it as well. Others ran before, and run on when they are let go of.
    var isOurs: Bool { if case .command = unit.origin { !isObserved } else { false } }
    /// A dry run looks at it, and changes nothing about it.
    let isObserved: Bool
    var suspension: ServiceUnit.Suspension { unit.suspension == .never ? .never : group.suspension }

    /// Reads what the kernel charges it.
    func weigh() {
        // What is kept for its next start is its memory still.
        guard isAlive else { return (charge, reclaimable) = (store.memory, .zero) }
        charge = group.charge ?? .zero
        if state == .suspended { reclaimable = group.reclaimable }
    }

    /// - Complexity: O(1).
    func report() -> UnitReport {
        var report = UnitReport(
            name: unit.name, role: unit.role, importance: unit.importance, state: state, since: since, charge: charge)
        (report.reclaimable, report.suspension, report.exitsOnSuspend) = (reclaimable, suspension, unit.exitsOnSuspend)
        (report.tokens, report.tokensEnd, report.isReady, report.isSaved) = (tokens, tokensEnd, isReady, isSaved)
        report.asksToStandSince = asksToStandSince
        report.isWarnable = peer != nil || pressure.connectionCount > 0
        (report.told, report.toldAt, report.backgroundSince) = (told, toldAt, backgroundSince)
        (report.allowance, report.isThrottled, report.throttledSince) = (
            unit.allowance, throttledSince != nil, throttledSince
        )
        (report.keepAlive, report.lastWoken, report.restart) = (keepAlive, lastWoken, unit.restart)
        (report.lastEnded, report.relaunchGap, report.dependencies) = (lastEnded, relaunchGap, unit.dependencies)
        // As long as nobody knows, it may.
        report.holdsLocks = saysLocks || state == .leaving && (locks.areHeld ?? true)
        return report
    }

    /// What a process said ends with it.
    func forgetWords() {
        (peer, tokens, tokensEnd, isReady, isSaved, saysLocks, status, watchdog) = (
            nil, 0, nil, false, false, false, nil, nil
        )
        (told, toldAt, backgroundSince, throttledSince, asksToStandSince) = (.normal, nil, nil, nil, nil)
        keepAlive = unit.keepAlive
    }
}

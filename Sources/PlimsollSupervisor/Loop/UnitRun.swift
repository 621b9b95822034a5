import Glibc
import Plimsoll
import PlimsollLinux

/// A unit at run time: group, first process, messages received, and operation in progress. Used only on the
/// supervisor's thread.
final class UnitRun {
    let id: UInt64
    var unit: ServiceUnit
    private(set) var group: UnitGroup
    let pressure: PressureSocket
    var child: Child?
    /// The first processes before the unit named another (`MAINPID`), until they end.
    var previousMainProcesses: [Child] = []
    /// Descriptors that the unit stores for the next start.
    var store = DescriptorStore()
    private(set) var state = UnitState.stopped
    private(set) var since = Duration.zero

    // Received from the unit.
    var messages = UnitMessages()
    var peer: UInt64?
    var tokens = 0
    var tokensEnd: Duration?
    var isReady = false
    var isSaved = false
    var saysLocks = false
    /// The worth of memory to the unit's caches, and the time of that message.
    var worth: (offer: WorthOffer, at: Duration)?
    /// The known state of the unit's file locks before a freeze.
    var locks = LockCheck()
    var suspensionRequestedAt: Duration?
    var status: String?
    /// The interval of the unit's watchdog messages. `lastAlive` is the time of the last one, or the time since which
    /// the unit runs if that is later (K35).
    var watchdog: Duration?
    var lastAlive = Duration.zero
    var keepAlive: Duration?

    // Sent to the unit, and actions on the unit.
    /// The share last sent over the unit's link; `nil` if none was.
    var share: ProcessShare?
    var notified = PressureLevel.normal
    var notifiedAt: Duration?
    var backgroundSince: Duration?
    var throttledSince: Duration?
    var lastWoken: Duration?
    /// Time of the decision to wake the unit for keep-alive; `nil` unless the unit runs because of that.
    var wokenAt: Duration?
    /// True once the time of that wake is over.
    private(set) var isWakeOver = false
    var lastEnded: Duration?
    var relaunchGap: Duration?
    /// The operation in progress, and the charge at its start. Numbered, since the end of an earlier operation may be
    /// reported late.
    var underWay: (number: UInt64, decision: Decision, charge: ByteCount)?
    /// Time at which the unit is killed after a request to end.
    var killAt: Duration?
    /// True if the limits are those of a leaving unit, to be restored before the unit continues.
    var isContained = false
    /// The role whose shares apply, if different from the unit's own.
    var shares: ServiceUnit.Role?
    /// The limits that remove the throttle again.
    var throttle: [LiftedLimit] = []
    /// True if the supervisor ended the unit, so that the end is no failure.
    var isEndedByUs = false
    /// Time of the next start, after the unit ended by itself.
    var startAt: Duration?
    var restarts = 0
    /// True if the unit has reported its start, or sends no such message.
    var isUp = true
    /// Time at which the start counts as failed without that report.
    var startBy: Duration?
    /// True if the unit's report may be lost: the unit was starting when no supervisor ran. The start then counts as
    /// successful at `startBy`.
    var mayBeUp = false
    /// True if the unit was found running, and its first process is not known.
    var isMainUnknown = false
    /// Time at which the first process was started or taken over; `nil` if that failed.
    var startedAt: Duration?
    /// Time of the next attempt to write the note after a failure.
    var noteDue: Duration?
    /// True if a failed kill was already reported.
    var isKillBlocked = false
    /// True if another party removed the group. The group is then no longer watched.
    var isGroupGone = false
    /// True if the unit is to be removed for good once ended.
    var isLeaving = false
    /// The unit of the same name that replaces this one after removal.
    var successor: ServiceUnit?
    var charge = ByteCount.zero
    var reclaimable = ByteCount.zero

    init(id: UInt64, _ unit: ServiceUnit, _ group: UnitGroup, _ pressure: PressureSocket, isObserved: Bool = false) {
        (self.id, self.unit, self.group, self.pressure, self.isObserved) = (id, unit, group, pressure, isObserved)
        keepAlive = unit.keepAlive
    }

    func enter(_ state: UnitState, at now: Duration) {
        guard state != self.state else { return }
        let frozen = frozenTime(at: now)
        tokensEnd = tokensEnd.map { $0 + frozen }
        messages.excuse(frozen)
        (backgroundSince, throttledSince) = (backgroundSince.map { $0 + frozen }, throttledSince.map { $0 + frozen })
        locks.begin()
        (self.state, since) = (state, now)
        isWakeOver = false
        if state != .running, state != .starting { wokenAt = nil }
        // The next freeze is another one, and its first wake is due an interval after its start.
        if state == .leaving || state == .stopped { lastWoken = nil }
    }

    /// Extends the unit's time limits by a pause in which the unit could not work.
    func excuse(_ pause: Duration) {
        lastAlive += pause
        (startBy, killAt) = (startBy.map { $0 + pause }, killAt.map { $0 + pause })
        // A frozen unit's times are extended by the whole freeze, once that is over.
        guard state != .suspending, state != .suspended else { return }
        tokensEnd = tokensEnd.map { $0 + pause }
        messages.excuse(pause)
        (backgroundSince, throttledSince) = (backgroundSince.map { $0 + pause }, throttledSince.map { $0 + pause })
        if state == .leaving || state == .ending { since += pause }
    }

    /// Returns the time since the freeze of a frozen unit, which counts against no time limit of the unit (K35).
    private func frozenTime(at now: Duration) -> Duration {
        state == .suspending || state == .suspended ? now - since : .zero
    }

    /// Records whether the time of a keep-alive wake is over. A unit that came to the foreground is not frozen again.
    func noteWake(at now: Duration, budget: Duration) {
        if state == .running, unit.role == .foreground, backgroundSince == nil { wokenAt = nil }
        isWakeOver = state == .running && wokenAt.map { now >= $0 + budget } ?? false
    }

    /// True if a freeze may be next, so that the unit's file locks count (C48).
    var isBeforeFreeze: Bool { state == .leaving || isWakeOver }

    var isAlive: Bool { state != .stopped }

    /// Moves the unit to another group, because another party removed the former one.
    func move(to group: UnitGroup) {
        self.group = group
        (isGroupGone, isContained, throttledSince, throttle, shares) = (false, false, nil, [], nil)
    }

    /// Marks the unit as running, or as still starting. The time of the watchdog begins anew.
    func goOn(at now: Duration) {
        enter(isUp ? .running : .starting, at: now)
        lastAlive = now
        startBy = isUp ? nil : now + (unit.startTime ?? Self.startTime)
    }

    /// The default of systemd (`DefaultTimeoutStartSec`).
    private static let startTime = Duration.seconds(90)
    /// True if the supervisor starts the unit, and so also ends it. Other units ran before, and continue after their
    /// release.
    var isOurs: Bool { if case .command = unit.origin { !isObserved } else { false } }
    /// True if a dry run observes the unit and changes nothing.
    let isObserved: Bool
    var suspension: ServiceUnit.Suspension { unit.suspension == .never ? .never : group.suspension }

    /// Reads the charge of the unit from the kernel.
    func weigh() {
        // Descriptors kept for the next start still count as memory of the unit.
        guard isAlive else { return (charge, reclaimable) = (store.memory, .zero) }
        charge = group.charge ?? .zero
        if state == .suspended { reclaimable = group.reclaimable }
    }

    /// - Complexity: O(1).
    func report(at now: Duration) -> UnitReport {
        var report = UnitReport(
            name: unit.name, role: unit.role, importance: unit.importance, state: state, since: since, charge: charge)
        (report.reclaimable, report.suspension, report.exitsOnSuspend) = (reclaimable, suspension, unit.exitsOnSuspend)
        (report.tokens, report.isReady, report.isSaved) = (tokens, isReady, isSaved)
        report.tokensEnd = tokensEnd.map { $0 + frozenTime(at: now) }
        report.suspensionRequestedAt = suspensionRequestedAt
        report.isWarnable = peer != nil || pressure.connectionCount > 0
        (report.notified, report.notifiedAt, report.backgroundSince) = (notified, notifiedAt, backgroundSince)
        (report.allowance, report.isThrottled, report.throttledSince) = (
            unit.allowance, throttledSince != nil, throttledSince
        )
        (report.keepAlive, report.lastWoken, report.restart) = (keepAlive, lastWoken, unit.restart)
        (report.lastEnded, report.relaunchGap, report.dependencies) = (lastEnded, relaunchGap, unit.dependencies)
        report.isRestarting = startAt != nil
        (report.hasLink, report.share, report.trustsWorth) = (peer != nil, share, unit.trustsWorth)
        (report.worth, report.worthAt) = (worth?.offer, worth?.at)
        // While unknown, assume that the unit holds locks.
        report.holdsLocks = saysLocks || isBeforeFreeze && (locks.areHeld ?? true)
        return report
    }

    /// Discards what was said over a link that has closed.
    func forgetLink() {
        (peer, tokens, tokensEnd, isReady, isSaved, saysLocks) = (nil, 0, nil, false, false, false)
        (suspensionRequestedAt, worth, share) = (nil, nil, nil)
    }

    /// Discards the messages of an ended process.
    func forgetMessages() {
        forgetLink()
        (status, watchdog) = (nil, nil)
        (notified, notifiedAt, backgroundSince, throttledSince) = (.normal, nil, nil, nil)
        keepAlive = unit.keepAlive
    }
}

package import Plimsoll

/// The state of a unit between its start and its end.
package enum UnitState: String, Sendable, Hashable, CaseIterable {
    /// Not running.
    case stopped
    /// Started, and not yet reported ready, for units that report readiness.
    case starting
    case running
    /// Told to go to the background, with 5 s to do so.
    case leaving
    /// Being frozen: the kernel has not confirmed the freeze.
    case suspending
    /// Frozen.
    case suspended
    /// Told to end, or being killed.
    case ending
}

/// The facts known about a unit at one time. All decisions are made from reports.
package struct UnitReport: Sendable, Hashable {
    package var name: String
    package var role: ServiceUnit.Role
    package var importance: Int
    package var state: UnitState
    /// Time of entry into `state`, on the supervisor's clock.
    package var since: Duration
    /// The bytes that the kernel charges to the unit, page cache included.
    package var charge: ByteCount
    /// The part of the charge that can be reclaimed from the frozen unit: page cache, volatile memory, and the rest
    /// where there is swap.
    package var reclaimable: ByteCount = .zero
    /// The method of freezing the unit on this system; `.never` if there is none.
    package var suspension: ServiceUnit.Suspension = .freeze
    package var exitsOnSuspend = false
    /// Number of background tasks that the unit reports as alive. `tokensEnd` is the latest time until which they may
    /// continue.
    package var tokens = 0
    package var tokensEnd: Duration?
    /// True if the unit is in the background and has finished its preparations, so there is nothing left to wait for.
    package var isReady = false
    /// True if the unit has reported that its end would lose nothing.
    package var isSaved = false
    /// Time at which the unit asked to be frozen; `nil` if there was no request or the request was granted.
    package var suspensionRequestedAt: Duration?
    /// True if the unit receives warnings.
    package var isWarnable = true
    /// The level last sent to the unit. `notifiedAt` is the time of that notice.
    package var notified: PressureLevel = .normal
    package var notifiedAt: Duration?
    /// Time since which the unit is in the background, by its own message or the supervisor's; `nil` in the foreground.
    package var backgroundSince: Duration?
    package var allowance: Duration?
    package var isThrottled = false
    package var throttledSince: Duration?
    package var keepAlive: Duration?
    package var lastWoken: Duration?
    package var restart: ServiceUnit.Restart = .onFailure
    /// Time at which the supervisor last ended the unit. `relaunchGap` is the time from then until the unit ran again:
    /// killing a unit that comes straight back does harm.
    package var lastEnded: Duration?
    package var relaunchGap: Duration?
    /// True if the start of the unit is planned, after a pause that grows with each failure.
    package var isRestarting = false
    /// True if the unit holds a file lock that other processes may wait for.
    package var holdsLocks = false
    package var dependencies: [String] = []
    /// True if the unit is connected over a link.
    package var hasLink = false
    /// The share last sent over that link; `nil` if none was.
    package var share: ProcessShare?
    /// The worth of memory to the unit's caches, as the unit says, and the time of that message.
    package var worth: WorthOffer?
    package var worthAt: Duration?
    package var trustsWorth = false

    package init(
        name: String, role: ServiceUnit.Role, importance: Int, state: UnitState, since: Duration, charge: ByteCount
    ) {
        (self.name, self.role, self.importance, self.state, self.since, self.charge) = (
            name, role, importance, state, since, charge
        )
    }
}

/// All units at one time, with the memory pressure of the system they share.
package struct Fleet: Sendable, Hashable {
    package var at: Duration
    package var level: PressureLevel
    /// Number of bytes to free to leave this level.
    package var shortfall: ByteCount
    /// Number of bytes that may be allocated before the level rises; `nil` if unknown.
    package var room: ByteCount?
    /// As `room`, with what is kept for bursts.
    package var roomToLine: ByteCount?
    /// Time until memory is exhausted at the current growth of usage; `nil` if usage doesn't grow.
    package var timeLeft: Duration?
    /// Time of the measurement, which may precede the last relief.
    package var measuredAt: Duration
    package var units: [UnitReport]

    package init(at: Duration, level: PressureLevel, shortfall: ByteCount, units: [UnitReport]) {
        (self.at, self.level, self.shortfall, self.measuredAt, self.units) = (at, level, shortfall, at, units)
    }
}

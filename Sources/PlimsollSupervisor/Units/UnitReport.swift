public import Plimsoll

/// Where a unit is between its start and its end.
public enum UnitState: String, Sendable, Hashable, CaseIterable {
    /// It does not run.
    case stopped
    /// It has been started and has not said that it is ready, if it says so at all.
    case starting
    case running
    /// It has been told to go to the background, and has 5 s for it.
    case leaving
    /// It is being made to stand still: the kernel has not confirmed it.
    case suspending
    /// It stands still.
    case suspended
    /// It has been told to end, or is being killed.
    case ending
}

/// What is known of a unit at some time: all that decisions are made from.
public struct UnitReport: Sendable, Hashable {
    public var name: String
    public var role: ServiceUnit.Role
    public var importance: Int
    public var state: UnitState
    /// Since when, on the supervisor's clock.
    public var since: Duration
    /// What the kernel charges it, page cache included.
    public var charge: ByteCount
    /// Of the charge, what comes back without ending it once it stands still: page cache, volatile memory, and the rest where there is swap for it.
    public var reclaimable: ByteCount = .zero
    /// How it can be made to stand still here; `.never` if it can't.
    public var suspension: ServiceUnit.Suspension = .freeze
    public var exitsOnSuspend = false
    /// Background tasks that it has said are alive, and until when at most it may finish them.
    public var tokens = 0
    public var tokensEnd: Duration?
    /// It is in the background and has put everything in order: nothing is waited for any more.
    public var isReady = false
    /// It has said that nothing would be lost.
    public var isSaved = false
    /// When it asked to be made to stand still; `nil` if it did not, or that was done.
    public var asksToStandSince: Duration?
    /// It hears warnings.
    public var isWarnable = true
    /// The level it was last told, and when.
    public var told: PressureLevel = .normal
    public var toldAt: Duration?
    /// Since when it is in the background by its own word or the supervisor's; `nil` while in front.
    public var backgroundSince: Duration?
    public var allowance: Duration?
    public var isThrottled = false
    public var throttledSince: Duration?
    public var keepAlive: Duration?
    public var lastWoken: Duration?
    public var restart: ServiceUnit.Restart = .onFailure
    /// When it was last ended by the supervisor, and how long after that it was there again: killing what comes straight back is harm.
    public var lastEnded: Duration?
    public var relaunchGap: Duration?
    /// It holds a file lock that others may wait for.
    public var holdsLocks = false
    public var dependencies: [String] = []

    public init(name: String, role: ServiceUnit.Role, importance: Int, state: UnitState, since: Duration, charge: ByteCount) {
        (self.name, self.role, self.importance, self.state, self.since, self.charge) = (name, role, importance, state, since, charge)
    }
}

/// All units at some time, and how short memory is where they all are.
public struct Fleet: Sendable, Hashable {
    public var at: Duration
    public var level: PressureLevel
    /// Bytes wanted back to be out of this level.
    public var shortfall: ByteCount
    /// Bytes that may be taken before the level rises; `nil` if that isn't known.
    public var room: ByteCount?
    /// Until nothing is left if usage goes on growing like this; `nil` if it doesn't.
    public var timeLeft: Duration?
    /// When that was measured, which may have been before something was given back.
    public var measuredAt: Duration
    public var units: [UnitReport]

    public init(at: Duration, level: PressureLevel, shortfall: ByteCount, units: [UnitReport]) {
        (self.at, self.level, self.shortfall, self.measuredAt, self.units) = (at, level, shortfall, at, units)
    }
}

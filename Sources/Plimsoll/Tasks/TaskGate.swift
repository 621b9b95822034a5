/// Decides if background tasks may begin, and by when running tasks must have ended. `BackgroundTaskRegistry`
/// carries out the decisions.
///
/// Times are running time, so that a freeze uses up neither the allowance nor a grace (T30, K35).
struct TaskGate {
    /// One expiration of all running tasks, under one deadline (T6).
    struct Sweep {
        let number: Int
        var reason: ExpirationReason
        var deadline: Duration
        var alarm: Alarms.Alarm?
        /// Number of threads that are still asking.
        var askers = 0
        /// True once the deadline has passed: the remaining tasks are being given up.
        var isEnding = false
        /// Callbacks that wait for the end, and receive the names of the tasks that did not end.
        var waiting: [@Sendable ([String]) -> Void] = []
    }

    /// The period in which tasks may end on their own.
    struct OwnEnd {
        /// Times at which the running tasks are asked to stop, and given up.
        var asksAt: Duration
        var givesUpAt: Duration
        var alarm: Alarms.Alarm?
        /// Callbacks that wait for the end, and receive the names of the tasks that did not end.
        var waiting: [@Sendable ([String]) -> Void] = []
    }

    /// Time at which the unit went into the background; `nil` in the foreground.
    private(set) var inBackgroundSince: Duration?
    /// Number of the current stay in the background.
    private(set) var stay = 0
    var isSuspended = false
    var isClosed = false
    var isSpent = false
    var sweep: Sweep?
    var allowanceAlarm: Alarms.Alarm?
    /// Set while a shutdown lets tasks end on their own; `nil` before, and once the tasks have been asked to stop.
    var ownEnd: OwnEnd?
    private var sweeps = 0
    /// Number of handed-over pieces of work whose acceptance is pending.
    var offers = 0
    /// Number of ended tasks at the last report that no task is left.
    var reportedIdleAt: UInt64?

    var refusal: BackgroundTaskRefusal.Cause? {
        if isClosed { return .shutdown }
        if isSuspended { return .suspended }
        // In the foreground, new work may begin: tasks that overran the allowance end by themselves, under their
        // own deadline.
        if let sweep, sweep.reason != .allowance || inBackgroundSince != nil { return .expiring }
        return isSpent ? .allowanceSpent : nil
    }

    /// Moves the unit to the background. Returns false if already there.
    mutating func enterBackground(at running: Duration) -> Bool {
        guard inBackgroundSince == nil else { return false }
        inBackgroundSince = running
        stay += 1
        reportedIdleAt = nil
        return true
    }

    mutating func enterForeground() -> Bool {
        guard inBackgroundSince != nil else { return false }
        inBackgroundSince = nil
        isSuspended = false
        isSpent = false
        return true
    }

    /// Restores as much of the allowance as the unit was frozen. A process that is woken occasionally gets an
    /// allowance for each wake (C33). No process runs longer in the background than it was frozen, plus one
    /// allowance.
    ///
    /// - Returns: the rest of `allowance` now; `nil` if nothing has changed.
    mutating func giveBack(_ gap: Duration, of allowance: Duration, at running: Duration) -> Duration? {
        guard let since = inBackgroundSince, !isClosed else { return nil }
        let spent = min(allowance, running - since)
        guard spent > .zero, gap > .zero else { return nil }
        let left = allowance - max(.zero, spent - gap)
        inBackgroundSince = running - (allowance - left)
        isSpent = false
        stay += 1
        return left
    }

    /// Returns the rest of `allowance`; `nil` in the foreground.
    func allowanceLeft(of allowance: Duration, at running: Duration) -> Duration? {
        inBackgroundSince.map { max(.zero, allowance - (running - $0)) }
    }

    /// Begins a sweep, or shortens the one under way. The earlier deadline holds, because each caller relies on its
    /// own.
    ///
    /// - Returns: true if the deadline is new and needs an alarm.
    mutating func sweep(_ reason: ExpirationReason, until deadline: Duration, done: (@Sendable ([String]) -> Void)?)
        -> Bool
    {
        let isNew = sweep.map { deadline < $0.deadline } ?? true
        if var current = sweep {
            current.deadline = min(current.deadline, deadline)
            // A reason that also refuses tasks in the foreground replaces one that does not.
            if current.reason == .allowance { current.reason = reason }
            sweep = current
        } else {
            sweeps += 1
            sweep = Sweep(number: sweeps, reason: reason, deadline: deadline)
        }
        sweep?.askers += 1
        if let done { sweep?.waiting.append(done) }
        return isNew
    }
}

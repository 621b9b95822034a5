/// Whether background tasks may begin, and by when those that run must have ended: decided here, carried out by `BackgroundTaskRegistry`.
///
/// Times are running time, so that a freeze eats neither the allowance nor a grace (T30, K35).
struct TaskGate {
    /// All tasks that ran are asked to stop, under one deadline (T6).
    struct Sweep {
        let number: Int
        var reason: ExpirationReason
        var deadline: Duration
        var alarm: Alarms.Alarm?
        /// Threads that are still asking.
        var askers = 0
        /// Its deadline has come: those left are being given up.
        var isEnding = false
        /// Who waits for its end, and is told who has not ended.
        var waiting: [@Sendable ([String]) -> Void] = []
    }

    /// The time in which tasks may come to their own end.
    struct OwnEnd {
        /// When those that run are asked to stop, and when they are given up.
        var asksAt: Duration
        var givesUpAt: Duration
        var alarm: Alarms.Alarm?
        /// Called when none runs any more, or those that do are asked.
        var waiting: [@Sendable () -> Void] = []
    }

    /// When the unit went into the background; `nil` in the foreground.
    private(set) var inBackgroundSince: Duration?
    /// Which stay in the background it is.
    private(set) var stay = 0
    var isSuspended = false
    var isClosed = false
    var isSpent = false
    var sweep: Sweep?
    var allowanceAlarm: Alarms.Alarm?
    /// A shutdown has begun in which tasks may still come to their own end; `nil` before, and once they have been asked to stop.
    var ownEnd: OwnEnd?
    private var sweeps = 0
    /// Work handed over whose acceptance is waited for.
    var offers = 0
    /// How many tasks had ended when it was last said that none is left.
    var toldIdleAt: UInt64?

    var refusal: BackgroundTaskRefusal.Cause? {
        if isClosed { return .shutdown }
        if isSuspended { return .suspended }
        // Back in the foreground nothing stands against new work: those that overran the allowance end by themselves, under their own deadline.
        if let sweep, sweep.reason != .allowance || inBackgroundSince != nil { return .expiring }
        return isSpent ? .allowanceSpent : nil
    }

    /// False if it is there already.
    mutating func enterBackground(at running: Duration) -> Bool {
        guard inBackgroundSince == nil else { return false }
        inBackgroundSince = running
        stay += 1
        toldIdleAt = nil
        return true
    }

    mutating func enterForeground() -> Bool {
        guard inBackgroundSince != nil else { return false }
        inBackgroundSince = nil
        isSuspended = false
        isSpent = false
        return true
    }

    /// Time in which the unit did not run gives as much of the allowance back: a process that is woken now and then has
    /// an allowance for each wake (C33), and none runs in the background for longer than it stood still but for one allowance.
    ///
    /// - Returns: what is left of `allowance` now; `nil` if nothing has changed.
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

    /// What is left of `allowance`; `nil` in the foreground.
    func allowanceLeft(of allowance: Duration, at running: Duration) -> Duration? {
        inBackgroundSince.map { max(.zero, allowance - (running - $0)) }
    }

    /// A sweep begins, or the one under way is hurried: whoever set a deadline keeps it, so the earlier one holds.
    ///
    /// - Returns: whether the deadline is a new one, for which an alarm is to be set.
    mutating func sweep(_ reason: ExpirationReason, until deadline: Duration, done: (@Sendable ([String]) -> Void)?) -> Bool {
        let isNew = sweep.map { deadline < $0.deadline } ?? true
        if var current = sweep {
            current.deadline = min(current.deadline, deadline)
            // What holds against begins in the foreground too outlasts what doesn't.
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

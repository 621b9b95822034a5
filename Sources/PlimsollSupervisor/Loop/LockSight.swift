/// The known state of the file locks of a unit that is about to be frozen.
struct LockSight: Equatable {
    /// True if the unit holds locks; `nil` before the first check.
    private(set) var areHeld: Bool?
    /// Start of the last check. `isLooking` is true while the answer is pending.
    private var asked: Duration?
    private var isLooking = false
    /// Time at which the unit reported to be ready.
    private var readyAt: Duration?

    /// Time between checks of a unit that holds locks.
    static let interval = Duration.seconds(1)

    /// Starts over when the unit changes state: nothing is known about its locks.
    mutating func begin() { (areHeld, asked, readyAt) = (nil, nil, nil) }

    /// Records that the unit reports ready to be frozen. A lock seen before may only have protected the save, so the
    /// check repeats at once. Applies only to the first report on a way out, so that a unit that changes its mind costs
    /// no more.
    mutating func becameReady(at now: Duration) {
        guard readyAt == nil else { return }
        readyAt = now
        if areHeld == true { (areHeld, asked) = (nil, nil) }
    }

    /// Returns true if another thread is to check now: once, and again for as long as locks are held.
    func isDue(at now: Duration) -> Bool {
        !isLooking && areHeld != false && asked.map { now - $0 >= Self.interval } ?? true
    }

    /// Records that another thread checks from now on.
    mutating func look(at now: Duration) { (isLooking, asked) = (true, now) }

    /// Records the result of the check that began at `asked`.
    ///
    /// - Parameter counts: true if the unit has not changed state since the check began.
    mutating func answer(_ areHeld: Bool, asked: Duration, counts: Bool) {
        isLooking = false
        guard counts else { return }
        // The check began before the unit was ready: see `becameReady(at:)`.
        if areHeld, let readyAt, asked < readyAt { return }
        self.areHeld = areHeld
    }

    /// Records the result of a check on the supervisor's own thread.
    mutating func saw(_ areHeld: Bool, at now: Duration) { (self.areHeld, asked) = (areHeld, now) }
}

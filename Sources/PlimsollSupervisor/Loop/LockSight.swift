/// Knowledge of the file locks of a unit that is on its way to standing still.
struct LockSight: Equatable {
    /// True if the unit holds locks; `nil` while no look has told.
    private(set) var areHeld: Bool?
    /// When the last look began, and whether its answer is still to come.
    private var asked: Duration?
    private var isLooking = false
    /// When the unit said that it is ready.
    private var readyAt: Duration?

    /// Time between looks at a unit that holds locks.
    static let interval = Duration.seconds(1)

    /// The unit is on its way since now: nothing is known of it.
    mutating func begin() { (areHeld, asked, readyAt) = (nil, nil, nil) }

    /// The unit says that it is ready to stand still. A lock that was seen before may have been one that it saved under, so
    /// it is looked for again at once. Only the first time on a way out, so that a unit that goes to and fro costs no more.
    mutating func becameReady(at now: Duration) {
        guard readyAt == nil else { return }
        readyAt = now
        if areHeld == true { (areHeld, asked) = (nil, nil) }
    }

    /// Returns true if a thread of its own is to look now: once, and again for as long as locks are held.
    func isDue(at now: Duration) -> Bool {
        !isLooking && areHeld != false && asked.map { now - $0 >= Self.interval } ?? true
    }

    /// Another thread looks from now on.
    mutating func look(at now: Duration) { (isLooking, asked) = (true, now) }

    /// The look that began at `asked` has ended.
    ///
    /// - Parameter counts: whether the unit is still on the way on which it was then.
    mutating func answer(_ areHeld: Bool, asked: Duration, counts: Bool) {
        isLooking = false
        guard counts else { return }
        // Seen before the unit was ready: see `becameReady(at:)`.
        if areHeld, let readyAt, asked < readyAt { return }
        self.areHeld = areHeld
    }

    /// A look on the supervisor's own thread has told.
    mutating func saw(_ areHeld: Bool, at now: Duration) { (self.areHeld, asked) = (areHeld, now) }
}

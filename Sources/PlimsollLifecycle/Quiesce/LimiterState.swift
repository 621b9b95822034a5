import Plimsoll

/// The decisions of a `ConcurrencyLimiter`: admission, waiting and wake-up.
struct LimiterState<Waiter> {
    struct Rules {
        var limit: Int
        var inBackground: Int
        var mostWaiting: Int
        /// Longest wait while no work is admitted; zero refuses at once, `nil` means no limit.
        var pausePatience: Duration?
    }

    enum Arrival {
        case admitted
        case refused(AdmissionRefusal.Reason)
        /// The caller waits. Carries the ticket to leave with, and the next sweep if that is new.
        case waits(ticket: UInt64, sweep: Sweep?)
    }

    /// The due time and the number of the next call of `sweep`. Only the number requested last counts.
    struct Sweep: Equatable {
        var number: UInt64
        var due: Duration
    }

    /// The waiters whose wait is over, and the next sweep if that is new.
    struct Dequeued {
        var admitted: [Waiter] = []
        var refused: [(waiter: Waiter, reason: AdmissionRefusal.Reason)] = []
        var sweep: Sweep?
    }

    let rules: Rules
    private(set) var running = 0
    /// Callbacks for the end of all work in progress.
    var whenIdle: [@Sendable () -> Void] = []
    private(set) var admitted: UInt64 = 0
    private(set) var refused: UInt64 = 0
    private(set) var expired: UInt64 = 0
    private var queue = WaitQueue<Waiter>()
    /// True if no work is admitted for longer than the way back from a freeze takes.
    private var isStopped = false
    private var sweep = Sweep(number: 0, due: .max)

    init(_ rules: Rules) { self.rules = rules }

    var waiting: Int { queue.count }

    func room(_ extent: QuiesceExtent) -> Int { extent.count(of: rules.limit, inBackground: rules.inBackground) }

    /// Admits the caller at once if there is room and the queue is empty.
    mutating func enter(_ extent: QuiesceExtent) -> Bool {
        guard queue.count == 0, running < room(extent) else { return false }
        running += 1
        admitted += 1
        return true
    }

    /// Admits, refuses or queues the caller. A queued caller waits at most for `patience`, counted from `now`.
    mutating func arrive(_ waiter: Waiter, _ extent: QuiesceExtent, patience: Duration?, at now: Duration) -> Arrival {
        if enter(extent) { return .admitted }
        if queue.count >= rules.mostWaiting { return refuse(.queueIsFull(mostWaiting: rules.mostWaiting)) }
        if let patience, patience <= .zero { return refuse(.waitedTooLong(patience)) }
        var pauseDeadline = Duration.max
        if isStopped || stops(extent), let limit = rules.pausePatience {
            guard limit > .zero else { return refuse(.paused) }
            pauseDeadline = now + limit
        }
        let deadline = patience.map { now + $0 } ?? .max
        let ticket = queue.append(waiter, deadline: deadline, patience: patience, pauseDeadline: pauseDeadline)
        return .waits(ticket: ticket, sweep: nextSweep(by: min(deadline, pauseDeadline)))
    }

    private mutating func refuse(_ reason: AdmissionRefusal.Reason) -> Arrival {
        refused += 1
        return .refused(reason)
    }

    /// Records that a piece of work has finished, or never began. Returns true if callers wait; the caller then calls
    /// `poll`.
    mutating func leave(unused: Bool) -> Bool {
        running -= 1
        if unused { admitted -= 1 }
        return queue.count > 0
    }

    /// Removes a waiter that gives up; `nil` if the wait was already over.
    mutating func remove(_ ticket: UInt64) -> Waiter? { queue.remove(ticket) }

    /// Admits as many waiters as there is room for, in the order of arrival. Applies the policy when a pause begins.
    mutating func poll(_ extent: QuiesceExtent, at now: Duration) -> Dequeued {
        var dequeued = Dequeued()
        if !extent.isHeld, stops(extent) != isStopped {
            isStopped.toggle()
            if let limit = rules.pausePatience, limit > .zero {
                if isStopped {
                    queue.beginPause(until: now + limit)
                    if queue.count > 0 { dequeued.sweep = nextSweep(by: now + limit) }
                } else {
                    queue.endPause()
                }
            } else if rules.pausePatience != nil {
                while isStopped, let waiter = queue.popFirst() {
                    refused += 1
                    dequeued.refused.append((waiter, .paused))
                }
            }
        }
        let room = room(extent)
        while running < room, let waiter = queue.popFirst() {
            running += 1
            admitted += 1
            dequeued.admitted.append(waiter)
        }
        return dequeued
    }

    private func stops(_ extent: QuiesceExtent) -> Bool { !extent.isHeld && room(extent) == 0 }

    // MARK: Time

    /// Removes the waiters whose time is up. At most once in 10 ms, as each sweep checks all waiters.
    mutating func sweep(_ number: UInt64, at now: Duration) -> Dequeued {
        var dequeued = Dequeued()
        guard number == sweep.number else { return dequeued }
        sweep.due = .max
        dequeued.refused = queue.removeDue(by: now).map { place in
            guard place.isByPause, let limit = rules.pausePatience else {
                return (place.waiter, .waitedTooLong(place.patience ?? .zero))
            }
            return (place.waiter, .pausedTooLong(limit))
        }
        expired += UInt64(dequeued.refused.count)
        if let due = queue.nextDue { dequeued.sweep = nextSweep(by: max(due, now + .milliseconds(10))) }
        return dequeued
    }

    /// Switches to another clock, which is ahead by `offset`.
    mutating func moveClock(by offset: Duration) -> Sweep? {
        queue.moveDeadlines(by: offset)
        sweep.due = .max
        return queue.nextDue.flatMap { nextSweep(by: $0) }
    }

    private mutating func nextSweep(by due: Duration) -> Sweep? {
        guard due < sweep.due else { return nil }
        sweep = Sweep(number: sweep.number + 1, due: due)
        return sweep
    }
}

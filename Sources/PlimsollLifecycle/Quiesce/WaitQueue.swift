import Plimsoll

/// A queue of waiters in the order of arrival, with deadlines. A waiter that leaves early leaves no permanent hole.
struct WaitQueue<Waiter> {
    private struct Place {
        let ticket: UInt64
        var waiter: Waiter?
        let patience: Duration?
        var deadline: Duration
        var pauseDeadline: Duration

        var due: Duration { min(deadline, pauseDeadline) }
    }

    /// The places in the order of their tickets. Places before `head`, and places without a waiter, are free.
    private var places: [Place] = []
    private var head = 0
    private var nextTicket: UInt64 = 0

    /// Number of waiters.
    private(set) var count = 0

    /// Appends a waiter.
    ///
    /// - Parameters:
    ///   - deadline: time at which the patience ends.
    ///   - patience: duration of the patience.
    ///   - pauseDeadline: time at which the wait ends if the pause has not ended before.
    /// - Returns: The ticket to leave with.
    mutating func append(
        _ waiter: Waiter, deadline: Duration = .max, patience: Duration? = nil, pauseDeadline: Duration = .max
    ) -> UInt64 {
        defer { nextTicket += 1 }
        places.append(
            Place(
                ticket: nextTicket, waiter: waiter, patience: patience, deadline: deadline, pauseDeadline: pauseDeadline
            ))
        count += 1
        return nextTicket
    }

    /// Removes the waiter that has waited longest. Amortised O(1).
    mutating func popFirst() -> Waiter? {
        while head < places.count {
            let waiter = take(head)
            head += 1
            if let waiter {
                tidy()
                return waiter
            }
        }
        return nil
    }

    /// Removes the waiter with that ticket, unless it has left. O(log n), amortised.
    mutating func remove(_ ticket: UInt64) -> Waiter? {
        var low = head, high = places.count
        while low < high {
            let middle = (low + high) / 2
            if places[middle].ticket < ticket { low = middle + 1 } else { high = middle }
        }
        guard low < places.count, places[low].ticket == ticket, let waiter = take(low) else { return nil }
        tidy()
        return waiter
    }

    /// Removes the waiters whose time is up. `isByPause` is true if the pause lasted too long. O(n).
    mutating func removeDue(by now: Duration) -> [(waiter: Waiter, isByPause: Bool, patience: Duration?)] {
        var due: [(waiter: Waiter, isByPause: Bool, patience: Duration?)] = []
        for index in places.indices[head...] where places[index].due <= now {
            let place = places[index]
            if let waiter = take(index) { due.append((waiter, place.pauseDeadline < place.deadline, place.patience)) }
        }
        tidy()
        return due
    }

    /// The time at which the first waiter is due. O(n).
    var nextDue: Duration? {
        let due = places[head...].lazy.filter { $0.waiter != nil }.map(\.due).min()
        return due == .max ? nil : due
    }

    /// Begins a pause: each waiter without a pause deadline gets this one. O(n).
    mutating func beginPause(until deadline: Duration) {
        for index in places.indices[head...] where places[index].pauseDeadline == .max {
            places[index].pauseDeadline = deadline
        }
    }

    /// Ends the pause. O(n).
    mutating func endPause() {
        for index in places.indices[head...] { places[index].pauseDeadline = .max }
    }

    /// Switches to another clock, which is ahead by `offset`. O(n).
    mutating func moveDeadlines(by offset: Duration) {
        for index in places.indices[head...] {
            if places[index].deadline < .max { places[index].deadline += offset }
            if places[index].pauseDeadline < .max { places[index].pauseDeadline += offset }
        }
    }

    private mutating func take(_ index: Int) -> Waiter? {
        guard let waiter = places[index].waiter else { return nil }
        places[index].waiter = nil
        count -= 1
        return waiter
    }

    /// Removes free places once they are the majority.
    private mutating func tidy() {
        if count == 0 {
            places.removeAll(keepingCapacity: places.count <= 256)
            head = 0
        } else if places.count > 2 * count + 32 {
            places.removeAll { $0.waiter == nil }
            head = 0
        }
    }
}

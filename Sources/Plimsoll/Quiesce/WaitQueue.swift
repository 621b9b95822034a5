/// Who waits, in the order of arrival, and until when. Whoever leaves early leaves no hole.
struct WaitQueue<Waiter> {
    private struct Place {
        let ticket: UInt64
        var waiter: Waiter?
        let patience: Duration?
        var deadline: Duration
        var pauseDeadline: Duration

        var due: Duration { min(deadline, pauseDeadline) }
    }

    /// In the order of their tickets; those before `head`, and those without a waiter, have left.
    private var places: [Place] = []
    private var head = 0
    private var nextTicket: UInt64 = 0

    /// How many wait.
    private(set) var count = 0

    /// - Parameters:
    ///   - deadline: when its patience ends, and how long that was.
    ///   - pauseDeadline: when it ends if the pause does not end before.
    /// - Returns: the ticket to leave with.
    mutating func append(_ waiter: Waiter, deadline: Duration = .max, patience: Duration? = nil, pauseDeadline: Duration = .max) -> UInt64 {
        defer { nextTicket += 1 }
        places.append(Place(ticket: nextTicket, waiter: waiter, patience: patience, deadline: deadline, pauseDeadline: pauseDeadline))
        count += 1
        return nextTicket
    }

    /// The one who has waited longest. Amortised O(1).
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

    /// The one with that ticket, unless it has left. O(log n), amortised.
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

    /// Those whose time is up, and whether it was the pause that lasted too long. O(n).
    mutating func removeDue(by now: Duration) -> [(waiter: Waiter, isByPause: Bool, patience: Duration?)] {
        var due: [(waiter: Waiter, isByPause: Bool, patience: Duration?)] = []
        for index in places.indices[head...] where places[index].due <= now {
            let place = places[index]
            if let waiter = take(index) { due.append((waiter, place.pauseDeadline < place.deadline, place.patience)) }
        }
        tidy()
        return due
    }

    /// When the first must be told that its time is up. O(n).
    var nextDue: Duration? {
        let due = places[head...].lazy.filter { $0.waiter != nil }.map(\.due).min()
        return due == .max ? nil : due
    }

    /// A pause has begun: whoever has no end to it yet gets this one. O(n).
    mutating func beginPause(until deadline: Duration) {
        for index in places.indices[head...] where places[index].pauseDeadline == .max { places[index].pauseDeadline = deadline }
    }

    /// The pause is over. O(n).
    mutating func endPause() {
        for index in places.indices[head...] { places[index].pauseDeadline = .max }
    }

    /// Time is told by another clock, which shows so much more. O(n).
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

    /// Drops empty places once they are most.
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

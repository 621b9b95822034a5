import Plimsoll

/// Changes waiting to be dequeued: at most one slot a kind, regardless of the number of events (C59).
///
/// There are never more slots than kinds that changed since the last `take`. Changes that cancel out are skipped on
/// `take`.
struct EnvironmentSlots: Sendable {
    /// Changes in the order of the first event of each kind. The first `taken` of them have been dequeued.
    private var slots: [EnvironmentChange?] = []
    private var taken = 0
    private var places: [EnvironmentChange.Kind: Int] = [:]

    /// True if no change has been added since the slots were last empty. Changes that cancel out count until the next
    /// `take`.
    var isEmpty: Bool { places.isEmpty }

    /// Adds `change`, or merges it with the waiting change of the same kind.
    ///
    /// - Complexity: O(1), amortised.
    mutating func add(_ change: EnvironmentChange) {
        if let place = places[change.kind] {
            slots[place]?.merge(change)
        } else {
            places[change.kind] = slots.count
            slots.append(change)
        }
    }

    /// Dequeues the net change that has waited longest; `nil` if nothing differs from the state at the last dequeue.
    ///
    /// - Complexity: O(1), amortised.
    mutating func take() -> EnvironmentChange? {
        while taken < slots.count {
            guard let change = slots[taken] else { preconditionFailure("slot \(taken) was taken twice") }
            slots[taken] = nil
            places[change.kind] = nil
            taken += 1
            if change.isNet {
                compact()
                return change
            }
        }
        slots.removeAll(keepingCapacity: slots.count <= 64)
        taken = 0
        return nil
    }

    /// Number of slots, dequeued ones included.
    var room: Int { slots.count }

    /// Returns the number of events of `kind` that wait.
    func count(of kind: EnvironmentChange.Kind) -> Int { places[kind].flatMap { slots[$0]?.count } ?? 0 }

    /// Removes dequeued slots, so that the array of a slow reader does not grow without bound.
    private mutating func compact() {
        guard taken > 32, taken > slots.count / 2 else { return }
        slots.removeFirst(taken)
        for (kind, place) in places { places[kind] = place - taken }
        taken = 0
    }
}

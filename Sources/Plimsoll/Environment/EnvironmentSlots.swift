/// Changes that somebody has not taken yet: one slot a kind, whatever happens (C59).
///
/// There are never more than there are kinds that changed since the last look, and what went back to where it was takes none.
struct EnvironmentSlots: Sendable {
    /// In the order of the first event of each; the first `taken` of them are gone.
    private var slots: [EnvironmentChange?] = []
    private var taken = 0
    private var places: [EnvironmentChange.Kind: Int] = [:]

    /// Whether nothing at all has been added since it was last empty. What cancels out counts until somebody looks.
    var isEmpty: Bool { places.isEmpty }

    /// - Complexity: O(1), amortised.
    mutating func add(_ change: EnvironmentChange) {
        if let place = places[change.kind] {
            slots[place]?.merge(change)
        } else {
            places[change.kind] = slots.count
            slots.append(change)
        }
    }

    /// The net change that has waited longest; `nil` if nothing is different from what was taken before.
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

    /// Places in use or done with.
    var room: Int { slots.count }

    /// Events of `kind` that wait.
    func count(of kind: EnvironmentChange.Kind) -> Int { places[kind].flatMap { slots[$0]?.count } ?? 0 }

    /// A slow reader's slots must not creep through memory.
    private mutating func compact() {
        guard taken > 32, taken > slots.count / 2 else { return }
        slots.removeFirst(taken)
        for (kind, place) in places { places[kind] = place - taken }
        taken = 0
    }
}

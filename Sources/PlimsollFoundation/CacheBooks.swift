import Synchronization

/// What a `MemoryCache` holds and may hold, in numbers: its engine bounds bytes, this bounds the count and the costs that callers state.
///
/// A newcomer is entered before it is put in and an object that leaves is struck out after it has left, so the limits hold for what is there.
@usableFromInline
final class CacheBooks: Sendable {
    private struct State {
        var countLimit = 0
        var costLimit = 0
        var count = 0
        var cost = 0

        /// Whether the limits allow for `newcomers` of this cost in all. Zero is no limit.
        func allows(_ newcomers: Int, cost newCost: Int) -> Bool {
            (countLimit <= 0 || count <= countLimit - newcomers) && (costLimit <= 0 || cost <= costLimit - newCost)
        }
    }

    private let state = Mutex(State())

    /// The cost that counts for one that was stated: not less than zero, and at most 8 TiB, of which a million can be added up.
    static func counted(_ stated: Int) -> Int { min(max(0, stated), Int.max >> 20) }

    var countLimit: Int {
        get { state.withLock { $0.countLimit } }
        set { state.withLock { $0.countLimit = newValue } }
    }

    var costLimit: Int {
        get { state.withLock { $0.costLimit } }
        set { state.withLock { $0.costLimit = newValue } }
    }

    var count: Int { state.withLock { $0.count } }
    var cost: Int { state.withLock { $0.cost } }

    /// Whether there is more than the limits allow.
    var isOver: Bool { state.withLock { !$0.allows(0, cost: 0) } }

    /// Whether one of this cost could ever be admitted.
    func couldAdmit(_ cost: Int) -> Bool { state.withLock { $0.costLimit <= 0 || cost <= $0.costLimit } }

    /// Enters one of this cost if the limits allow for it.
    func enter(_ cost: Int) -> Bool {
        let cost = Self.counted(cost)
        return state.withLock { state in
            guard state.allows(1, cost: cost) else { return false }
            state.count += 1
            state.cost += cost
            return true
        }
    }

    /// Strikes out one that was entered.
    @usableFromInline
    func strike(_ cost: Int) {
        let cost = Self.counted(cost)
        state.withLock { state in
            state.count -= 1
            state.cost -= cost
        }
    }
}

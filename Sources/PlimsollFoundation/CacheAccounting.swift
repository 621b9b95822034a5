import Synchronization

/// Accounting of a `MemoryCache`: bounds the count and the stated costs, while the engine bounds bytes.
///
/// A new object is counted before insertion, and a leaving object is subtracted after removal. The limits therefore
/// always hold for the present objects.
@usableFromInline
final class CacheAccounting: Sendable {
    private struct State {
        var countLimit = 0
        var costLimit = 0
        var count = 0
        var cost = 0

        /// Returns true if the limits allow this number of new objects with this total cost. Zero means no limit.
        func allows(_ newcomers: Int, cost newCost: Int) -> Bool {
            (countLimit <= 0 || count <= countLimit - newcomers) && (costLimit <= 0 || cost <= costLimit - newCost)
        }
    }

    private let state = Mutex(State())

    /// Returns the counted cost for a stated cost: at least zero, at most 8 TiB, so that a million costs can be added
    /// up.
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

    /// True if the limits are exceeded.
    var isOver: Bool { state.withLock { !$0.allows(0, cost: 0) } }

    /// Returns true if an object of this cost could ever be admitted.
    func couldAdmit(_ cost: Int) -> Bool { state.withLock { $0.costLimit <= 0 || cost <= $0.costLimit } }

    /// Admits an object of this cost. Returns false if a limit forbids it.
    func enter(_ cost: Int) -> Bool {
        let cost = Self.counted(cost)
        return state.withLock { state in
            guard state.allows(1, cost: cost) else { return false }
            state.count += 1
            state.cost += cost
            return true
        }
    }

    /// Subtracts an object that was admitted.
    @usableFromInline
    func strike(_ cost: Int) {
        let cost = Self.counted(cost)
        state.withLock { state in
            state.count -= 1
            state.cost -= cost
        }
    }
}

import CPlimsollMemory
import Synchronization

/// The budgets of requests that run now.
package final class BudgetRegistry: Sendable {
    /// The list of the whole process, as the allocator is the whole process's. Never released, and no weak reference
    /// leads here: every budget retains the registry, and an object with a side table is retained more slowly.
    package static let process = BudgetRegistry(isWatched: false)

    /// Several lists, so that requests on several processors seldom wait for each other.
    private static let width = 16
    private let shards: [Shard]
    // Relaxed: counts by themselves.
    private let endedOverLimit = Atomic<Int>(0)
    private let endedForPressure = Atomic<Int>(0)

    fileprivate final class Shard: Sendable {
        let budgets = Mutex<[MemoryBudget]>([])
    }

    package convenience init() { self.init(isWatched: true) }

    private init(isWatched: Bool) {
        shards = (0..<Self.width).map { _ in Shard() }
        if isWatched { BudgetWatch.shared.watch(self) }
    }

    /// True if the allocator counts for budgets.
    package static var isMetered: Bool { plimsoll_budget_is_metered() }

    /// Numbers of requests that were told to end so far: above their limits, and because memory was short.
    package var ended: (overLimit: Int, forPressure: Int) {
        (endedOverLimit.load(ordering: .relaxed), endedForPressure.load(ordering: .relaxed))
    }

    package var all: [MemoryBudget] { shards.flatMap { $0.budgets.withLock { $0 } } }

    func add(_ budget: MemoryBudget) {
        shard(of: budget).budgets.withLock { budgets in
            budget.placeInList = budgets.count
            budgets.append(budget)
        }
    }

    /// Takes the budget off the list. Idempotent. Frees nothing under the lock, as the caller refers to the budget.
    func remove(_ budget: MemoryBudget) {
        shard(of: budget).budgets.withLock { budgets in
            guard budget.placeInList >= 0 else { return }
            budgets.swapAt(budget.placeInList, budgets.count - 1)
            budgets[budget.placeInList].placeInList = budget.placeInList
            budgets.removeLast()
            budget.placeInList = -1
        }
    }

    func contains(_ budget: MemoryBudget) -> Bool {
        shard(of: budget).budgets.withLock { _ in budget.placeInList >= 0 }
    }

    /// Calls `body` with each request that holds more than `least`, under a lock. Allocates nothing.
    func each(above least: ByteCount, _ body: (_ name: String, _ bytes: Int) -> Void) {
        var index = 0
        while index < shards.count {
            shards[index].each(above: least.bytes, body)
            index += 1
        }
    }

    /// Returns the request that holds most, above `least` bytes, among those that can be cancelled and have not been
    /// told to end; `nil` if there is none. Allocates nothing.
    func largest(above least: ByteCount) -> MemoryBudget? {
        var most = max(0, least.bytes), found: MemoryBudget?
        // By index: without optimization, an iterator allocates, and the pressure loop calls this method.
        var index = 0
        while index < shards.count {
            // The last finding may be the last reference to an ended budget: it is released outside the lock.
            let last = found
            shards[index].findLargest(above: &most, &found)
            withExtendedLifetime(last) {}
            index += 1
        }
        return found
    }

    /// Cancels the requests that were told to end. User code may run inside.
    func cancelMarked() {
        for budget in all { cancelIfMarked(budget) }
    }

    /// Cancels and counts the request if it was told to end, once.
    func cancelIfMarked(_ budget: MemoryBudget) {
        guard let excess = budget.excess, budget.cancel() else { return }
        switch excess.reason {
        case .limit: endedOverLimit.add(1, ordering: .relaxed)
        case .pressure: endedForPressure.add(1, ordering: .relaxed)
        }
    }

    private func shard(of budget: MemoryBudget) -> Shard {
        // Addresses of objects are multiples of 16.
        shards[Int(bitPattern: Unmanaged.passUnretained(budget).toOpaque()) / 16 % Self.width]
    }
}

extension BudgetRegistry.Shard {
    func each(above least: Int, _ body: (_ name: String, _ bytes: Int) -> Void) {
        budgets.withLock { budgets in
            var index = 0
            while index < budgets.count {
                let live = Int(plimsoll_budget_live(budgets[index].counters))
                if live > least { body(budgets[index].name, live) }
                index += 1
            }
        }
    }

    func findLargest(above most: inout Int, _ found: inout MemoryBudget?) {
        budgets.withLock { budgets in
            var index = 0
            while index < budgets.count {
                let live = Int(plimsoll_budget_live(budgets[index].counters))
                if live > most, budgets[index].canBeCancelled {
                    most = live
                    found = budgets[index]
                }
                index += 1
            }
        }
    }
}

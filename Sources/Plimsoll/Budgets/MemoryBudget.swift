import CPlimsollMemory
import Synchronization

/// The heap memory of one request, or of one part of a request.
///
/// `withMemoryBudget` and `withMemoryMeter` make budgets. `Jemalloc.meterRequests()` of PlimsollJemalloc has the
/// allocator count: every allocation and every free of the budget's task, of child tasks, of `Task {}` and of actors
/// that the task calls. Without that call a budget counts only `charge(_:)` and `credit(_:)`.
///
/// The count is a sample: a thread reports about every 64 KiB, so no limit below some 4 MiB makes sense. Bytes are
/// those that the allocator has set aside, which is more than requested: an array of 1 MiB takes 1.25 MiB. Memory that
/// a detached task or an event loop allocates is missing; `charge(_:)` adds such memory. Pages from `mmap` are unseen.
/// A budget inside another one counts for both.
public final class MemoryBudget: Sendable {
    /// The name in reports: method and route of a request, for example.
    public let name: String
    /// The bytes above which the request is cancelled; `nil` for no limit.
    public let limit: ByteCount?

    /// The budget around this one; kept alive, as the counters refer to that one's.
    let outer: MemoryBudget?
    let registry: BudgetRegistry
    // Counters in C, atomic by themselves; allocated at the start and freed with this object.
    nonisolated(unsafe) let counters: OpaquePointer
    /// The task to cancel.
    let work = Mutex(Work())
    // Guarded by the lock of the list that holds this budget.
    nonisolated(unsafe) var placeInList = -1

    /// The innermost budget of the current task; `nil` outside any budget.
    public static var current: MemoryBudget? { place.budget }

    @TaskLocal package static var place = BudgetPlace(nil)

    /// Creates a budget inside the current one. `registry` lists the budget until `end()`.
    package init(limit: ByteCount? = nil, name: String, registry: BudgetRegistry = .process) {
        precondition(
            limit ?? .zero >= .zero,
            "MemoryBudget \(name): the limit is \(limit?.description ?? ""), allowed is zero or more, or nil")
        BudgetWatch.shared.start()
        self.name = name
        self.limit = limit
        self.registry = registry
        outer = Self.current
        guard let counters = plimsoll_budget_make(limit.map { Int64($0.bytes) } ?? .max, outer?.counters) else {
            fatalError("MemoryBudget \(name): no memory for the counters")
        }
        self.counters = counters
        registry.add(self)
    }

    deinit { plimsoll_budget_free(counters) }

    /// Takes the budget off the list. Idempotent.
    package func end() {
        registry.remove(self)
        // A request may end by itself before the watch has come to it.
        registry.cancelIfMarked(self)
    }

    /// True after `end()`.
    package var hasEnded: Bool { !registry.contains(self) }

    /// The bytes held now, as far as threads have reported.
    package var held: ByteCount { max(.zero, ByteCount(Int(plimsoll_budget_live(counters)))) }

    /// The bytes held now; zero if the request has freed more than it allocated.
    public var live: ByteCount {
        settleOwn()
        return held
    }

    /// The most bytes held so far.
    public var peak: ByteCount {
        settleOwn()
        return ByteCount(Int(plimsoll_budget_peak(counters)))
    }

    /// True once the request was told to end: its bytes exceeded the limit, or memory is short and the request held
    /// most.
    public var isExceeded: Bool {
        settleOwn()
        return excess != nil
    }

    /// Throws if the request was told to end. For loops that never suspend, where no other call notices.
    public func check() throws(MemoryBudgetExceeded) {
        settleOwn()
        if let excess { throw excess }
    }

    /// Adds memory that the allocator does not count for this budget, such as a body that an event loop has received.
    /// Freeing such memory in the budget's task subtracts the bytes again. A negative number counts as zero.
    public func charge(_ bytes: ByteCount) { add(max(.zero, bytes)) }

    /// Subtracts memory that was charged, and is freed where the allocator does not count for this budget. A negative
    /// number counts as zero.
    public func credit(_ bytes: ByteCount) { add(.zero - max(.zero, bytes)) }

    /// The reason to end, with the bytes held at that moment; `nil` if there is none.
    package var excess: MemoryBudgetExceeded? {
        var bytes: Int64 = 0
        let reason: MemoryBudgetExceeded.Reason
        switch plimsoll_budget_marked(counters, &bytes) {
        case PLIMSOLL_BUDGET_OVER_LIMIT: reason = .limit
        case PLIMSOLL_BUDGET_FOR_PRESSURE: reason = .pressure
        default: return nil
        }
        return MemoryBudgetExceeded(name: name, held: ByteCount(Int(bytes)), limit: limit, reason: reason)
    }

    /// Tells the request to end because memory is short. Returns false if the request was told before. Allocates
    /// nothing: the watch cancels the task.
    func endForPressure() -> Bool { plimsoll_budget_mark(counters, PLIMSOLL_BUDGET_FOR_PRESSURE) }

    /// A quarter of the largest number is more than any machine has, and no sum of a few overflows.
    private static let most = ByteCount(.max / 4)

    private func add(_ bytes: ByteCount) {
        plimsoll_budget_add(counters, Int64(min(max(bytes, .zero - Self.most), Self.most).bytes))
    }

    /// Charges what the current thread has not reported yet, if this thread works for this budget.
    private func settleOwn() { if Self.current === self { plimsoll_budget_settle(counters) } }
}

/// The task-local place of a budget. The allocator's callback reads the first word, so the order of the members matters.
package struct BudgetPlace: Sendable {
    // A pointer to counters that `budget` keeps alive. The counters are atomic.
    private nonisolated(unsafe) let counters: OpaquePointer?
    let budget: MemoryBudget?

    init(_ budget: MemoryBudget?) {
        self.budget = budget
        counters = budget?.counters
    }
}

/// The error of a request that was ended for its memory.
public struct MemoryBudgetExceeded: Error, Sendable, Hashable, CustomStringConvertible {
    /// The name of the budget.
    public var name: String
    /// The bytes held when the request was told to end. The request may have grown until it stopped.
    public var held: ByteCount
    /// The limit of the budget; `nil` for none.
    public var limit: ByteCount?
    /// The reason.
    package var reason: Reason

    package enum Reason: Sendable, Hashable {
        /// The request held more than its limit.
        case limit
        /// Memory was short, and no request held more.
        case pressure
    }

    /// True if memory was short and the request held most; false if the request exceeded its own limit.
    public var isForPressure: Bool { reason == .pressure }

    /// The request and the reason, as one sentence.
    public var description: String {
        switch reason {
        case .limit: "\(name) was cancelled because it held \(held) of memory, above its limit of \(limit ?? .zero)"
        case .pressure: "\(name) was cancelled because memory is short and it held most, \(held)"
        }
    }
}

import CPlimsollMemory
import Synchronization

/// Runs `body` in a task of its own with a budget for its memory, waits for the task, and cancels it above `limit`.
///
///     let report = try await withMemoryBudget(.mebibytes(64), name: "POST /reports") {
///         try await render(order)
///     }
///
/// Cancellation is cooperative: code that never checks for cancellation, nor calls `MemoryBudget.check()`, goes on.
/// `Jemalloc.meterRequests()` of PlimsollJemalloc must have been called, or only charged bytes count.
///
/// - Parameters:
///   - limit: the bytes above which the task is cancelled, not less than 4 MiB to be of use; `nil` to count only. The
///     rung `PressureAction.cancelLargestRequest(above:)` can cancel the task in both cases.
///   - name: the name in reports.
///   - body: the request. Inherits priority, task-local values and the caller's cancellation.
/// - Throws: `MemoryBudgetExceeded` in place of any error that `body` throws after it was cancelled for its memory;
///   otherwise the errors of `body`.
/// - Precondition: `limit` is not negative.
/// - Complexity: O(1); the cost of a task more than a call of `body`, some microseconds.
public nonisolated(nonsending) func withMemoryBudget<Success: Sendable>(
    _ limit: ByteCount? = nil, name: String, _ body: sending @escaping @isolated(any) () async throws -> Success
) async throws -> Success {
    let budget = MemoryBudget(limit: limit, name: name)
    defer { budget.end() }
    return try await budget.run(body)
}

/// Runs `body` in place with a budget that only counts. Above `limit` nothing is cancelled: `MemoryBudget.check()`
/// throws, and `MemoryBudget.isExceeded` is true.
///
/// - Parameters:
///   - limit: the bytes above which the budget is exceeded; `nil` for no limit.
///   - name: the name in reports.
///   - body: the work; receives the budget.
/// - Precondition: `limit` is not negative.
/// - Complexity: O(1); less than a microsecond more than a call of `body`.
public nonisolated(nonsending) func withMemoryMeter<Success>(
    _ limit: ByteCount? = nil, name: String,
    _ body: nonisolated(nonsending) (MemoryBudget) async throws -> Success
) async rethrows -> Success {
    let budget = MemoryBudget(limit: limit, name: name)
    defer { budget.end() }
    return try await budget.count { try await body(budget) }
}

/// Runs synchronous `body` in place with a budget that only counts, as the asynchronous function of this name does.
public func withMemoryMeter<Success>(
    _ limit: ByteCount? = nil, name: String, _ body: (MemoryBudget) throws -> Success
) rethrows -> Success {
    let budget = MemoryBudget(limit: limit, name: name)
    defer { budget.end() }
    plimsoll_budget_settle(MemoryBudget.current?.counters)
    return try MemoryBudget.$place.withValue(BudgetPlace(budget)) {
        defer { plimsoll_budget_settle(budget.counters) }
        return try body(budget)
    }
}

extension MemoryBudget {
    /// The work of a budget.
    struct Work {
        /// Cancels the task that runs now; `nil` while none runs.
        var cancel: (@Sendable () -> Void)?
        /// True while there is such a task. A question about the closure allocates without optimization.
        var runs = false
        var isCancelled = false
    }

    /// Runs `body` as a task that is cancelled when the budget is told to end. May run several parts of a request, one
    /// after another.
    package nonisolated(nonsending) func run<Success: Sendable>(
        _ body: sending @escaping @isolated(any) () async throws -> Success
    ) async throws -> Success {
        if let excess { throw excess }
        let task = Task {
            // The rest of other work on this thread is not this request's.
            plimsoll_budget_settle(nil)
            return try await Self.$place.withValue(BudgetPlace(self)) {
                defer { settle() }
                return try await body()
            }
        }
        defer { finish() }
        // Told to end before the watch could know the task: its handlers are kept off the pool as well.
        if !begin({ task.cancel() }) { BudgetWatch.shared.perform { task.cancel() } }
        do {
            return try await withTaskCancellationHandler {
                try await task.value
            } onCancel: {
                task.cancel()
            }
        } catch {
            if let excess { throw excess }
            throw error
        }
    }

    /// Runs `body` in place for the budget, as a part of a request that only `check()` can end.
    package nonisolated(nonsending) func runInPlace<Success>(
        _ body: nonisolated(nonsending) () async throws -> Success
    ) async throws -> Success {
        if let excess { throw excess }
        _ = begin {}
        defer { finish() }
        return try await count(body)
    }

    /// Runs `body` in place, and charges what the body allocates.
    fileprivate nonisolated(nonsending) func count<Success>(
        _ body: nonisolated(nonsending) () async throws -> Success
    ) async rethrows -> Success {
        plimsoll_budget_settle(MemoryBudget.current?.counters)
        return try await Self.$place.withValue(BudgetPlace(self)) {
            defer { settle() }
            return try await body()
        }
    }

    private func settle() { plimsoll_budget_settle(counters) }

    /// True while a task runs that has not been told to end.
    var canBeCancelled: Bool { work.withLock { $0.runs && !$0.isCancelled } && excess == nil }

    /// Cancels the task, and all later ones. Returns false if that was done before.
    func cancel() -> Bool {
        let (isFirst, cancel) = work.withLock { work in
            defer { work.isCancelled = true }
            return (!work.isCancelled, work.cancel)
        }
        if isFirst { cancel?() }
        return isFirst
    }

    /// Returns false if the budget was cancelled before.
    private func begin(_ cancel: @escaping @Sendable () -> Void) -> Bool {
        work.withLock { work in
            work.cancel = cancel
            work.runs = true
            return !work.isCancelled
        }
    }

    private func finish() {
        // Freed outside the lock: the closure refers to the task, and the task to user code.
        _ = work.withLock { work in
            work.runs = false
            return exchange(&work.cancel, nil)
        }
    }
}

/// The life of a budget beyond one function: from a request to the end of its response. The budget ends once, by
/// `end()` or when the object is released, as for a client that is gone.
package final class BudgetScope: Sendable {
    package let budget: MemoryBudget

    package init(_ budget: MemoryBudget) { self.budget = budget }

    deinit { end() }

    /// Ends the budget. Idempotent.
    package func end() { budget.end() }
}

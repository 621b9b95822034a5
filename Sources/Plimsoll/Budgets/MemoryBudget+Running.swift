import CPlimsollMemory
import Synchronization

/// Runs `body` in a task of its own with a budget for its memory, waits for the task, and cancels it above `limit`.
///
///     let report = try await withMemoryBudget(.mebibytes(64), name: "POST /reports") {
///         try await render(order)
///     }
///
/// Cancellation is cooperative: code that never checks for cancellation, nor calls `MemoryBudget.check()`, goes on.
/// `Jemalloc.meterRequests()` of PlimsollJemalloc must have been called, or only charged bytes count. The task begins on
/// the calling thread (`Task.immediate`), except on macOS before 26.
///
/// - Parameters:
///   - limit: the bytes above which the task is cancelled, not less than 4 MiB to be of use; `nil` to count only. The
///     rung `PressureAction.cancelLargestRequest(above:)` can cancel the task in both cases.
///   - name: the name in reports.
///   - body: the request. Inherits priority, task-local values and the caller's cancellation.
/// - Throws: `MemoryBudgetExceeded` in place of any error that `body` throws after it was cancelled for its memory;
///   otherwise the errors of `body`.
/// - Precondition: `limit` is not negative.
/// - Complexity: O(1); the cost of a task more than a call of `body`, a microsecond or two.
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
        /// The task to cancel; `nil` if only `check()` can end the work.
        var task: RunningTask?
        /// True while there is work.
        var runs = false
        /// True once the body of the task has returned.
        var hasReturned = false
        var isCancelled = false
        /// True while a thread calls the task's `cancel()`.
        var isCancelling = false
        /// The task, if the task ended meanwhile: kept until `cancel()` returns.
        var kept: (any Sendable)?
    }

    /// A task as the task itself knows it, before its handle is known to the code that started the task.
    // Unchecked: `cancel()` may be called from any thread (stdlib/public/Concurrency/Task.swift). The task lives: its
    // creator refers to it, and gives the reference to `kept` if `cancel()` is being called when the task ends.
    struct RunningTask: @unchecked Sendable {
        private let task: UnsafeCurrentTask

        init(_ task: UnsafeCurrentTask) { self.task = task }
        func cancel() { task.cancel() }
    }

    /// Runs `body` as a task that is cancelled when the budget is told to end. May run several parts of a request, one
    /// after another.
    package nonisolated(nonsending) func run<Success: Sendable>(
        _ body: sending @escaping @isolated(any) () async throws -> Success
    ) async throws -> Success {
        if let excess { throw excess }
        let task = start(body)
        defer { finish(task) }
        do {
            // Most requests never suspend. Their task has ended, and a handler of cancellation is not worth its cost.
            if work.withLock(\.hasReturned) { return try await task.value }
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

    /// Starts a task that begins on the calling thread, and so costs a third of one that another thread has to pick up.
    private func start<Success: Sendable>(
        _ body: sending @escaping @isolated(any) () async throws -> Success
    ) -> Task<Success, any Error> {
        // Sent to one task: the closure that starts the task runs once, here.
        nonisolated(unsafe) let body = body
        // The task runs before a handler could pass the caller's cancellation on.
        let isCancelled = Task.isCancelled
        let operation: @Sendable @concurrent () async throws -> Success = { [self] in
            // The watch must know the task before the first statement of `body`.
            withUnsafeCurrentTask { begin($0.map(RunningTask.init), isCancelled: isCancelled) }
            plimsoll_budget_settle(outer?.counters)
            defer { leave() }
            return try await body()
        }
        // The task inherits the place.
        return Self.$place.withValue(BudgetPlace(self)) {
            if #available(macOS 26, *) { return Task.immediate(operation: operation) }
            return Task(operation: operation)
        }
    }

    private func leave() {
        settle()
        work.withLock { $0.hasReturned = true }
    }

    /// Runs `body` in place for the budget, as a part of a request that only `check()` can end.
    package nonisolated(nonsending) func runInPlace<Success>(
        _ body: nonisolated(nonsending) () async throws -> Success
    ) async throws -> Success {
        if let excess { throw excess }
        begin(nil)
        defer { finish(nil) }
        return try await count(body)
    }

    /// Runs `body` as a task for a part of the current budget, and then credits what the task allocated up to the first
    /// suspension: a message that another thread sends and frees. After an error nothing is credited, as the message
    /// was not taken. Outside any budget, and for a cancelled caller, `body` runs in place.
    package static nonisolated(nonsending) func handingOver(
        _ body: @escaping @Sendable @concurrent () async throws -> Void
    ) async throws {
        guard let whole = current, !Task.isCancelled else { return try await body() }
        let part = MemoryBudget(name: whole.name, registry: whole.registry)
        // A part is no request of the list.
        part.end()
        let task = part.start(body)
        defer { part.finish(task) }
        // Before this thread runs other tasks. What another thread settles later is not only the message.
        part.settle()
        let handedOver = part.held
        try await withTaskCancellationHandler {
            try await task.value
        } onCancel: {
            task.cancel()
        }
        // Not what the task itself has freed since: that is subtracted already.
        part.credit(min(handedOver, part.held))
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
        let (isFirst, task) = work.withLock { work in
            guard !work.isCancelled else { return (false, RunningTask?.none) }
            work.isCancelled = true
            work.isCancelling = work.task != nil
            return (true, work.task)
        }
        guard isFirst, let task else { return isFirst }
        // User code: the task's cancellation handlers.
        task.cancel()
        _ = work.withLock { work in
            work.isCancelling = false
            return exchange(&work.kept, nil)
        }
        return true
    }

    /// Records the task that does the work.
    ///
    /// - Parameter isCancelled: true if the caller was cancelled before the task began.
    private func begin(_ task: RunningTask?, isCancelled: Bool = false) {
        let isToldToEnd = work.withLock { work in
            work.task = task
            work.runs = true
            return work.isCancelled
        }
        // The request came before the task began: there are no cancellation handlers yet.
        if isCancelled || isToldToEnd { task?.cancel() }
    }

    /// Ends the work. `task` is the task that did the work.
    private func finish(_ task: (any Sendable)?) {
        work.withLock { work in
            work.task = nil
            work.runs = false
            work.hasReturned = false
            if work.isCancelling { work.kept = task }
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

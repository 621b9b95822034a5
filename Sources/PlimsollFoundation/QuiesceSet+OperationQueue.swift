public import Foundation
public import Plimsoll
public import PlimsollLifecycle
import Synchronization

extension QuiesceSet {
    /// Suspends `queue` when the set pauses. Reduces concurrent operations when memory is short or the process is in
    /// the background. Restores the former settings afterwards.
    ///
    /// A queue that was suspended already stays suspended. A concurrency limit that other code changes in the
    /// meantime stays as changed. The set retains the queue until the registration is cancelled.
    ///
    /// - Parameters:
    ///   - queue: a queue of the application. Without a concurrency limit, the number of processors is used as the
    ///     limit.
    ///   - name: name in reports; by default the queue's name.
    ///   - inBackground: greatest number of concurrent operations in the background; 0 suspends the queue there.
    ///   - workClass: class of work that the queue serves. A lease on the class keeps the queue running
    ///     (`QuiesceSet.lease`).
    /// - Precondition: the queue is not the main queue.
    @discardableResult
    public func add(_ queue: OperationQueue, name: String? = nil, inBackground: Int = 1, workClass: String? = nil)
        -> Registration
    {
        precondition(
            queue !== OperationQueue.main,
            "quiesce.add(OperationQueue.main): the main queue must not be paused; add a queue of your own")
        return add(QuiescedOperationQueue(queue, name ?? queue.name ?? "operation queue", inBackground, workClass))
    }
}

private final class QuiescedOperationQueue: Quiescable {
    private struct State {
        /// True if this object suspended the queue.
        var isSuspended = false
        /// The concurrency limit found, and the limit set instead.
        var narrowed: (before: Int, now: Int)?
    }

    let name: String
    let workClass: String?
    private let queue: OperationQueue
    private let inBackground: Int
    private let state = Mutex(State())

    init(_ queue: OperationQueue, _ name: String, _ inBackground: Int, _ workClass: String?) {
        self.queue = queue
        self.name = name
        self.inBackground = inBackground
        self.workClass = workClass
    }

    // Calls are serial, so decisions made under the lock stay valid after unlocking. The settings of the queue change
    // outside the lock, because the queue then queries operations, which run client code.
    func quiesce(to extent: QuiesceExtent) {
        let found = (isSuspended: queue.isSuspended, limit: queue.maxConcurrentOperationCount)
        let (limit, isSuspended): (Int?, Bool?) = state.withLock { state in
            let before = state.narrowed?.before ?? found.limit
            let base =
                before == OperationQueue.defaultMaxConcurrentOperationCount
                ? ProcessInfo.processInfo.activeProcessorCount : before
            let count = extent.count(of: max(1, base), inBackground: inBackground)
            return (
                Self.limit(&state, found.limit, before, count, isWhole: !extent.isQuiet && extent.share == .whole),
                Self.suspension(&state, found.isSuspended, count == 0)
            )
        }
        if let limit { queue.maxConcurrentOperationCount = limit }
        if let isSuspended { queue.isSuspended = isSuspended }
    }

    /// Returns the concurrency limit to set, if any.
    private static func limit(_ state: inout State, _ found: Int, _ before: Int, _ count: Int, isWhole: Bool) -> Int? {
        if let narrowed = state.narrowed, narrowed.now != found {
            // Other code has changed the limit, and that limit stays from now on.
            state.narrowed = nil
            return nil
        }
        if isWhole {
            defer { state.narrowed = nil }
            return state.narrowed?.before
        }
        // With a limit of zero, other code has stopped the queue.
        guard count > 0, count != found, before != 0 else { return nil }
        state.narrowed = (before, count)
        return count
    }

    /// Returns the new value of `isSuspended`, if any.
    private static func suspension(_ state: inout State, _ found: Bool, _ suspends: Bool) -> Bool? {
        if suspends {
            guard !found else { return nil }
            state.isSuspended = true
            return true
        }
        guard state.isSuspended else { return nil }
        state.isSuspended = false
        return false
    }
}

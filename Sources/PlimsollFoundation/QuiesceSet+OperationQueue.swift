public import Foundation
public import Plimsoll
import Synchronization

extension QuiesceSet {
    /// Suspends `queue` when the set pauses, lets it run fewer operations at once when memory is short or the process is in the background, and puts
    /// back what was there when that is over.
    ///
    /// A queue that was suspended already stays so, and a number of operations that is changed meanwhile stays as it was changed. The set keeps the
    /// queue until the registration is cancelled.
    ///
    /// - Parameters:
    ///   - queue: a queue of the application's own. Without a number of its own it counts as one of as many operations as there are processors.
    ///   - name: what it is called in reports; the queue's name by default.
    ///   - inBackground: how many operations at most run at once in the background; 0 suspends it there.
    ///   - workClass: the class of work it serves; a lease on it keeps it going (`QuiesceSet.lease`).
    /// - Precondition: it is not the main queue.
    @discardableResult
    public func add(_ queue: OperationQueue, name: String? = nil, inBackground: Int = 1, workClass: String? = nil) -> Registration {
        precondition(queue !== OperationQueue.main, "quiesce.add(OperationQueue.main): add a queue of your own; the main one must run on")
        return add(QuiescedOperationQueue(queue, name ?? queue.name ?? "operation queue", inBackground, workClass))
    }
}

private final class QuiescedOperationQueue: Quiescable {
    private struct State {
        /// Whether it was this that suspended it.
        var isSuspended = false
        /// The number of operations found, and the one put in its place.
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

    // One call at a time, so that what is found out under the lock holds outside: the queue asks operations, which are anybody's code.
    func quiesce(to extent: QuiesceExtent) {
        let found = (isSuspended: queue.isSuspended, limit: queue.maxConcurrentOperationCount)
        let (limit, isSuspended): (Int?, Bool?) = state.withLock { state in
            let before = state.narrowed?.before ?? found.limit
            let base = before == OperationQueue.defaultMaxConcurrentOperationCount ? ProcessInfo.processInfo.activeProcessorCount : before
            let count = extent.count(of: max(1, base), inBackground: inBackground)
            return (
                Self.limit(&state, found.limit, before, count, isWhole: !extent.isQuiet && extent.share == .whole),
                Self.suspension(&state, found.isSuspended, count == 0)
            )
        }
        if let limit { queue.maxConcurrentOperationCount = limit }
        if let isSuspended { queue.isSuspended = isSuspended }
    }

    /// The number of operations to set, if any.
    private static func limit(_ state: inout State, _ found: Int, _ before: Int, _ count: Int, isWhole: Bool) -> Int? {
        if let narrowed = state.narrowed, narrowed.now != found {
            // Somebody else has changed it: theirs holds from now on.
            state.narrowed = nil
            return nil
        }
        if isWhole {
            defer { state.narrowed = nil }
            return state.narrowed?.before
        }
        guard count > 0, count != found else { return nil }
        state.narrowed = (before, count)
        return count
    }

    /// What to set `isSuspended` to, if anything.
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

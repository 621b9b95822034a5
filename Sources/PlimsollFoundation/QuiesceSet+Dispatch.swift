public import Dispatch
public import Plimsoll
import Synchronization

/// What something that can only run or be suspended does in the background, and while memory is so short that the ladder quiesces.
public enum QuietBehaviour: Sendable, Hashable {
    /// It is suspended.
    case suspended
    /// It goes on; only a pause suspends it.
    case goesOn
}

extension QuiesceSet {
    /// Suspends `queue` when the set pauses and resumes it when that is over; what it runs is finished, what comes meanwhile is kept.
    ///
    /// Balanced with whatever else suspends the queue: it runs when everybody has resumed it. The set keeps the queue until the registration is
    /// cancelled, which resumes it if need be.
    ///
    /// - Parameters:
    ///   - queue: a queue of the application's own. What blocks waiting for its blocks (`sync`) waits as long as it is suspended.
    ///   - name: what it is called in reports; the queue's label by default.
    ///   - inBackground: what it does in the background.
    ///   - workClass: the class of work it serves; a lease on it keeps it going (`QuiesceSet.lease`).
    /// - Precondition: it is neither the main queue nor a global one, which cannot be suspended.
    @discardableResult
    public func add(
        _ queue: DispatchQueue, name: String? = nil, inBackground: QuietBehaviour = .suspended, workClass: String? = nil
    ) -> Registration {
        // By label: Swift's objects for one of dispatch's own queues are not always the same one.
        let isOwn = queue.label != DispatchQueue.main.label && !queue.label.hasPrefix("com.apple.root.")
        precondition(isOwn, "quiesce.add(\(queue.label)): the main queue and the global ones cannot be suspended; add a queue of your own")
        return add(
            SuspendableObject(
                name ?? queue.label, inBackground, workClass, suspend: { [queue = Shared(queue)] in queue.object.suspend() },
                resume: { [queue = Shared(queue)] in queue.object.resume() }))
    }

    /// Suspends a timer or another dispatch source when the set pauses and resumes it when that is over. A timer fires once then, however often it
    /// would have fired, and keeps its phase.
    ///
    /// Balanced, and kept, as for a queue.
    ///
    /// - Parameters:
    ///   - source: a source that has been activated.
    ///   - name: what it is called in reports.
    ///   - inBackground: what it does in the background.
    ///   - workClass: the class of work it serves; a lease on it keeps it going (`QuiesceSet.lease`).
    @discardableResult
    public func add(
        _ source: any DispatchSourceProtocol, name: String = "dispatch source", inBackground: QuietBehaviour = .suspended, workClass: String? = nil
    ) -> Registration {
        add(
            SuspendableObject(
                name, inBackground, workClass, suspend: { [source = Shared(source)] in source.object.suspend() },
                resume: { [source = Shared(source)] in source.object.resume() }))
    }
}

/// A dispatch object, of which only what may be called from any thread is called.
// Suspending and resuming are atomic operations on the object's own count.
private struct Shared<Object>: @unchecked Sendable {
    let object: Object
    init(_ object: Object) { self.object = object }
}

/// Something that counts how often it has been suspended: by this at most once, and never when it is released, which would end the process.
private final class SuspendableObject: Quiescable {
    let name: String
    let workClass: String?
    private let inBackground: QuietBehaviour
    private let suspend: @Sendable () -> Void
    private let resume: @Sendable () -> Void
    private let isSuspended = Mutex(false)

    init(
        _ name: String, _ inBackground: QuietBehaviour, _ workClass: String?, suspend: @escaping @Sendable () -> Void,
        resume: @escaping @Sendable () -> Void
    ) {
        self.name = name
        self.inBackground = inBackground
        self.workClass = workClass
        self.suspend = suspend
        self.resume = resume
    }

    deinit { if isSuspended.withLock({ $0 }) { resume() } }

    func quiesce(to extent: QuiesceExtent) {
        let suspends = inBackground == .suspended ? extent.isQuiet : extent.isPaused
        // Neither runs anybody's code.
        isSuspended.withLock { isSuspended in
            guard suspends != isSuspended else { return }
            isSuspended = suspends
            if suspends { suspend() } else { resume() }
        }
    }
}

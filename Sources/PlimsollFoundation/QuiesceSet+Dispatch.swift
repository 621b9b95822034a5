public import Dispatch
public import Plimsoll
public import PlimsollLifecycle
import Synchronization

extension QuiesceSet {
    /// Suspends `queue` when the set pauses, and resumes the queue after the pause. Running work finishes; new work
    /// is kept.
    ///
    /// Suspensions count together with those of other code: the queue runs when each suspension has been resumed.
    /// The set retains the queue until the registration is cancelled, which resumes the queue if necessary.
    ///
    /// - Parameters:
    ///   - queue: a queue of the application. Callers that wait for its blocks (`sync`) wait while the queue is
    ///     suspended.
    ///   - name: name in reports; by default the queue's label.
    ///   - suspendsInBackground: true to suspend the queue also in the background, and while the pressure ladder
    ///     quiesces; false to suspend it only when the set pauses.
    ///   - workClass: class of work that the queue serves. A lease on the class keeps the queue running
    ///     (`QuiesceSet.lease`).
    /// - Precondition: the queue is neither the main queue nor a global one, which cannot be suspended.
    @discardableResult
    public func add(
        _ queue: DispatchQueue, name: String? = nil, suspendsInBackground: Bool = true, workClass: String? = nil
    ) -> Registration {
        // Compare labels: Swift may return different objects for one of dispatch's own queues.
        let isOwn = queue.label != DispatchQueue.main.label && !queue.label.hasPrefix("com.apple.root.")
        precondition(
            isOwn,
            "quiesce.add(\(queue.label)): the main queue and the global queues cannot be suspended; add a queue of your own"
        )
        return add(
            SuspendableObject(
                name ?? queue.label, suspendsInBackground, workClass,
                suspend: { [queue = Shared(queue)] in queue.object.suspend() },
                resume: { [queue = Shared(queue)] in queue.object.resume() }))
    }

    /// Suspends a timer or another dispatch source when the set pauses, and resumes the source after the pause. A
    /// timer then fires once, regardless of the number of missed events, and keeps its phase.
    ///
    /// Suspensions count together with those of other code, and the set retains the source, as for a queue.
    ///
    /// - Parameters:
    ///   - source: an activated source.
    ///   - name: name in reports.
    ///   - suspendsInBackground: as for a queue.
    ///   - workClass: class of work that the source serves. A lease on the class keeps the source running
    ///     (`QuiesceSet.lease`).
    @discardableResult
    public func add(
        _ source: any DispatchSourceProtocol, name: String = "dispatch source",
        suspendsInBackground: Bool = true, workClass: String? = nil
    ) -> Registration {
        add(
            SuspendableObject(
                name, suspendsInBackground, workClass,
                suspend: { [source = Shared(source)] in source.object.suspend() },
                resume: { [source = Shared(source)] in source.object.resume() }))
    }
}

/// A dispatch object, of which only thread-safe functions are called.
// Unchecked: suspending, resuming and cancelling are atomic operations on the object's own state.
struct Shared<Object>: @unchecked Sendable {
    let object: Object
    init(_ object: Object) { self.object = object }
}

/// An object that counts suspensions. Suspended here at most once, and always resumed before release: releasing a
/// suspended object would end the process.
private final class SuspendableObject: Quiescable {
    let name: String
    let workClass: String?
    private let suspendsInBackground: Bool
    private let suspend: @Sendable () -> Void
    private let resume: @Sendable () -> Void
    private let isSuspended = Mutex(false)

    init(
        _ name: String, _ suspendsInBackground: Bool, _ workClass: String?, suspend: @escaping @Sendable () -> Void,
        resume: @escaping @Sendable () -> Void
    ) {
        self.name = name
        self.suspendsInBackground = suspendsInBackground
        self.workClass = workClass
        self.suspend = suspend
        self.resume = resume
    }

    deinit { if isSuspended.withLock({ $0 }) { resume() } }

    func quiesce(to extent: QuiesceExtent) {
        let suspends = suspendsInBackground ? extent.isQuiet : extent.isPaused
        // Neither call runs client code, so both may run under the lock.
        isSuspended.withLock { isSuspended in
            guard suspends != isSuspended else { return }
            isSuspended = suspends
            if suspends { suspend() } else { resume() }
        }
    }
}

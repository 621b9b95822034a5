import Synchronization

/// Tells a supervisor's link that background work begins, before that work can change what was reported as saved.
///
/// The link arms the notice, then counts the background tasks, then reports. A task that the link did not count finds
/// the notice armed: both sides take the lock of the task's shard in between.
package final class WorkNotice: Sendable {
    // Relaxed: ordered by the locks of the shards. The link stores before it takes each of them, and a task loads after
    // it has been counted under one. Whichever side has the lock second sees what the other did before.
    private let isArmed = Atomic<Bool>(false)
    /// A struct: in a generic type such as `Mutex`, each access wraps a closure in a tuple once more.
    private struct Link {
        var number: UInt64 = 0
        var tell: (@Sendable () -> Void)?
    }
    private let link = Mutex(Link())

    /// Sets `tell` as the current link's hook. `tell` is called on the thread that begins a task, before the task is
    /// returned, and may block that thread for a moment.
    func connect(_ tell: @escaping @Sendable () -> Void) -> Registration {
        let (number, former) = link.withLock { link in
            defer { link.tell = tell }
            link.number += 1
            return (link.number, link.tell)
        }
        withExtendedLifetime(former) {}
        return Registration(close: {}) { [weak self] in
            let gone = self?.link.withLock { link in link.number == number ? exchange(&link.tell, nil) : nil }
            withExtendedLifetime(gone) {}
        }
    }

    /// Has tasks that begin from now on told to the link, or not.
    package func arm(_ isArmed: Bool) { self.isArmed.store(isArmed, ordering: .relaxed) }

    /// Called after a task was counted. Costs one load unless armed.
    func workBegins() {
        guard isArmed.load(ordering: .relaxed) else { return }
        link.withLock { $0.tell }?()
    }
}

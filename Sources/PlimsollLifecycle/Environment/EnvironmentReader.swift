package import Plimsoll
import Synchronization

/// A sequence of changes of the environment. A slow reader gets the net change since the last dequeue.
///
/// Made by `Lifecycle.environmentChanges`; covers changes from that moment. Belongs to one loop: two loops that share
/// one sequence share the changes.
package struct EnvironmentChanges: AsyncSequence, Sendable {
    package typealias Element = EnvironmentChange
    package typealias Failure = Never

    let reader: EnvironmentReader

    package func makeAsyncIterator() -> Iterator { Iterator(reader: reader) }

    /// Dequeues one change after the other.
    package struct Iterator: AsyncIteratorProtocol {
        let reader: EnvironmentReader

        /// Returns the next net change; `nil` when the task is cancelled.
        package mutating func next() async -> EnvironmentChange? { await reader.next() }
    }
}

/// The slots of one reader, and the tasks that wait for changes.
final class EnvironmentReader: Sendable {
    private typealias Waiter = CheckedContinuation<EnvironmentChange?, Never>

    private struct State {
        var slots = EnvironmentSlots()
        var waiting: [(id: UInt64, waiter: Waiter)] = []
        var lastID: UInt64 = 0
    }

    private let state = Mutex(State())
    private let isHeld: @Sendable () -> Bool
    private let onDrop: @Sendable () -> Void

    init(isHeld: @escaping @Sendable () -> Bool, onDrop: @escaping @Sendable () -> Void) {
        self.isHeld = isHeld
        self.onDrop = onDrop
    }

    deinit { onDrop() }

    /// True if a task waits for the next change. For tests.
    var isAwaited: Bool { state.withLock { !$0.waiting.isEmpty } }

    func add(_ change: EnvironmentChange) {
        state.withLock { $0.slots.add(change) }
        flush()
    }

    /// Resumes waiting tasks with the available changes, unless changes are held back.
    func flush() {
        while true {
            let next: (Waiter, EnvironmentChange)? = state.withLock { state in
                guard !state.waiting.isEmpty, !isHeld(), let change = state.slots.take() else { return nil }
                return (state.waiting.removeFirst().waiter, change)
            }
            guard let (waiter, change) = next else { return }
            waiter.resume(returning: change)
        }
    }

    func next() async -> EnvironmentChange? {
        let id = state.withLock { state in
            state.lastID += 1
            return state.lastID
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { (waiter: Waiter) in
                // An earlier cancellation is seen here; a later one finds the waiter.
                let answer: EnvironmentChange?? = state.withLock { state in
                    if Task.isCancelled { return .some(nil) }
                    if !isHeld(), let change = state.slots.take() { return change }
                    state.waiting.append((id, waiter))
                    return nil
                }
                if let answer { waiter.resume(returning: answer) }
            }
        } onCancel: {
            let waiter = state.withLock { state in
                state.waiting.firstIndex { $0.id == id }.map { state.waiting.remove(at: $0).waiter }
            }
            waiter?.resume(returning: nil)
        }
    }
}

/// A source of facts about the process's surroundings: the kernel, or a test's script. May be called from any thread.
///
/// A source only reports that a value may have changed. The library then reads the value and compares. So superfluous
/// or merged events do no harm.
package protocol EnvironmentSource: Sendable {
    /// Starts the source. The source calls `sink` from any thread with each kind that may have changed, and the number
    /// of raw events seen. `sink` returns at once. Called once, before any other method.
    func start(_ sink: @escaping @Sendable (EnvironmentChange.Kind, Int) -> Void)

    /// Begins to watch `kind`; calls are counted. Changes after this method returns are reported.
    ///
    /// - Returns: false if this source does not know `kind`. Such a kind is neither read nor unwatched.
    func watch(_ kind: EnvironmentChange.Kind) -> Bool

    /// Undoes one `watch`. After the last one the source holds no file, no thread and no memory for `kind`.
    func unwatch(_ kind: EnvironmentChange.Kind)

    /// Calls the sink, within this call, for all raw events that wait.
    func collect()

    /// Returns the present value; `nil` if the value can't be read just now. May block on a file system.
    func read(_ kind: EnvironmentChange.Kind) -> EnvironmentValue?

    /// The signals that this source listens to, and by which means; empty while nothing is watched.
    var signals: [Capabilities.Signal] { get }
}

/// A source of readings that also reports changes of the process's environment: clock, time zone, files, devices.
///
/// A life cycle watches the environment through the source of its manager, if that source conforms.
package protocol EnvironmentProvider: Sendable {
    /// The source of changes; `nil` for none.
    var environment: (any EnvironmentSource)? { get }
}

import Plimsoll
import Synchronization

/// A worker thread for slow kernel operations, such as memory reclaim. The supervisor does all other work itself, at
/// once.
final class Hands: Sendable {
    private let jobs = Mutex<[@Sendable () -> Void]>([])
    private let isOver = Mutex(false)
    private let parker = Parker()

    /// - Throws: an error if no thread can be started.
    init() throws(SupervisorError) {
        guard
            Thread.start(
                "plimsoll-hands",
                { [jobs = self.take, parker] in while let job = jobs() { if let job { job() } else { parker.park() } } }
            )
        else {
            throw SupervisorError(
                "no thread could be started; is the limit of processes reached (pids.max, RLIMIT_NPROC)?")
        }
    }

    func work(_ job: @escaping @Sendable () -> Void) {
        jobs.withLock { $0.append(job) }
        parker.unpark()
    }

    func stop() {
        isOver.withLock { $0 = true }
        parker.unpark()
    }

    /// Returns the next job: an inner `nil` if the queue is empty, an outer `nil` after `stop()`.
    @Sendable
    private func take() -> (@Sendable () -> Void)?? {
        if isOver.withLock({ $0 }) { return nil }
        return .some(jobs.withLock { $0.isEmpty ? nil : $0.removeFirst() })
    }
}

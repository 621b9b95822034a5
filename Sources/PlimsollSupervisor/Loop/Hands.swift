import Plimsoll
import Synchronization

/// A thread for what the kernel takes its time over: memory that is pushed out. Everything else the supervisor does itself, at once.
final class Hands: Sendable {
    private let jobs = Mutex<[@Sendable () -> Void]>([])
    private let isOver = Mutex(false)
    private let parker = Parker()

    /// - Throws: if no thread can be started.
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

    /// The next job; an empty one if there is none, nothing when it is over.
    @Sendable
    private func take() -> (@Sendable () -> Void)?? {
        if isOver.withLock({ $0 }) { return nil }
        return .some(jobs.withLock { $0.isEmpty ? nil : $0.removeFirst() })
    }
}

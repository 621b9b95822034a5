import Plimsoll
import Synchronization

/// A thread that performs several periodic duties. Duties call plug-ins of the application, which may be slow or
/// hang. A hanging duty blocks only the other duties of this thread.
final class ReportThread: Sendable {
    /// A periodic duty, first performed at once. Created on the thread, and called only by the thread.
    struct Duty {
        var interval: Duration
        var perform: () -> Void
    }

    private let parker = Parker()
    private let isStopped = Mutex(false)

    /// Starts the thread.
    ///
    /// - Returns: `nil` if no thread can be started.
    init?(_ makeDuties: @escaping @Sendable () -> [Duty]) {
        let started = Thread.start("plimsoll-report") { [parker, self] in
            let elapsed = Timekeeper.running.elapsed
            var duties = makeDuties().map { (duty: $0, due: elapsed()) }
            guard !duties.isEmpty else { return }
            while !self.isStopped.withLock({ $0 }) {
                for index in duties.indices where duties[index].due <= elapsed() {
                    duties[index].duty.perform()
                    duties[index].due = elapsed() + duties[index].duty.interval
                }
                let next = duties.map(\.due).min() ?? .zero
                parker.park(atMost: max(.zero, next - elapsed()))
            }
        }
        if !started { return nil }
    }

    /// Stops the thread. No further duty begins; does not wait for a running duty.
    func stop() {
        isStopped.withLock { $0 = true }
        parker.unpark()
    }
}

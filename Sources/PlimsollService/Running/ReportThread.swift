import Plimsoll
import Synchronization

/// A thread that does several things, each every so often: they call into what the application has plugged in, which may take its time or hang without holding
/// up anything but each other.
final class ReportThread: Sendable {
    /// Something to be done every so often, the first time at once. Made on the thread, and called by it alone.
    struct Duty {
        var interval: Duration
        var perform: () -> Void
    }

    private let parker = Parker()
    private let isStopped = Mutex(false)

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

    /// Nothing is begun any more; what is being done is not waited for.
    func stop() {
        isStopped.withLock { $0 = true }
        parker.unpark()
    }
}

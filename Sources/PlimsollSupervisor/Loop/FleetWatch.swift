import CPlimsollSupervisor
import Plimsoll
import PlimsollLinux
import Synchronization

/// The monitor of memory pressure on the system that all units share. Uses the same manager as services, with nothing
/// registered and no permitted actions.
final class FleetWatch: Sendable {
    private let view = Mutex(Fleet(at: .zero, level: .normal, shortfall: .zero, units: []))
    private let isHurried = Atomic(false)
    private let running = Mutex<Task<Void, Never>?>(nil)

    /// The last measurement, without units.
    var current: Fleet { view.withLock { $0 } }

    /// Starts measuring.
    ///
    /// - Parameters:
    ///   - time: the clock of the views.
    ///   - onChange: called on the measuring thread after each relevant measurement: while memory is short, and when
    ///     the shortage ends.
    ///   - onEnd: called if measuring is no longer possible.
    func start(
        _ source: any PressureSource, thresholds: PressureThresholds, time: Timekeeper,
        onChange: @escaping @Sendable () -> Void,
        onEnd: @escaping @Sendable (String) -> Void
    ) {
        let manager = ResourceManager(
            source: source, policy: PressurePolicy(ladder: .none, thresholds: thresholds), time: time,
            onTurn: { [weak self] reading, assessment in
                self?.hurry()
                // Uses the present level, not the held one: a victim's memory that has been freed ends the shortage.
                var new = Fleet(at: reading.at, level: assessment.present, shortfall: assessment.shortfall, units: [])
                (new.room, new.roomToLine, new.timeLeft) = (
                    assessment.room, assessment.roomToLine, assessment.timeLeft
                )
                // While memory is not short, the supervisor's own thread is left alone.
                if self?.replace(new) ?? .normal > .normal || new.level > .normal { onChange() }
            })
        running.withLock {
            $0 = Task {
                do { try await manager.run() } catch { if !(error is CancellationError) { onEnd("\(error)") } }
            }
        }
    }

    /// The supervisor did not start the measuring thread, so that thread must raise its own priority.
    private func hurry() {
        // Relaxed: only one thread measures.
        if !isHurried.exchange(true, ordering: .relaxed) { _ = plimsoll_hurry(SelfProtection.Options().nice) }
    }

    func stop() { running.withLock { $0?.cancel() } }

    /// Replaces the last measurement and returns the previous level.
    private func replace(_ new: Fleet) -> PressureLevel {
        view.withLock { exchange(&$0, new).level }
    }
}

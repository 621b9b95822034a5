import CPlimsollSupervisor
import Plimsoll
import PlimsollLinux
import Synchronization

/// The supervisor's eyes: how short memory is where all units are. The same manager that services have, with nothing registered and nothing it may do.
final class FleetWatch: Sendable {
    struct View: Sendable, Equatable {
        var at = Duration.zero
        var level = PressureLevel.normal
        var shortfall = ByteCount.zero
        var room: ByteCount?
        /// Until nothing is left if it goes on like this.
        var timeLeft: Duration?
    }

    private let view = Mutex(View())
    private let isHurried = Atomic(false)
    private let running = Mutex<Task<Void, Never>?>(nil)

    var current: View { view.withLock { $0 } }

    /// Begins to look.
    ///
    /// - Parameters:
    ///   - time: of its views.
    ///   - onChange: called on the looking thread after each look that matters: while memory is short, and when it no longer is.
    ///   - onEnd: called if it can't look any more.
    func start(
        _ source: any PressureSource, thresholds: PressureThresholds, time: Timekeeper,
        onChange: @escaping @Sendable () -> Void,
        onEnd: @escaping @Sendable (String) -> Void
    ) {
        let manager = ResourceManager(
            source: source, policy: PressurePolicy(ladder: .none, thresholds: thresholds), time: time,
            onTurn: { [weak self] reading, assessment in
                self?.hurry()
                // By what is seen now, not by the level that is held: a victim's memory that has come back ends the shortage.
                let new = View(
                    at: reading.at, level: assessment.present, shortfall: assessment.shortfall, room: assessment.room,
                    timeLeft: assessment.timeLeft)
                // Idle, the supervisor's own thread is left alone.
                if self?.replace(new) ?? .normal > .normal || new.level > .normal { onChange() }
            })
        running.withLock {
            $0 = Task {
                do { try await manager.run() } catch { if !(error is CancellationError) { onEnd("\(error)") } }
            }
        }
    }

    /// The looking thread is none that the supervisor's has started, so it is as urgent by its own doing.
    private func hurry() {
        // Relaxed: one thread looks.
        if !isHurried.exchange(true, ordering: .relaxed) { _ = plimsoll_hurry(SelfProtection.Options().nice) }
    }

    func stop() { running.withLock { $0?.cancel() } }

    /// The level before.
    private func replace(_ new: View) -> PressureLevel {
        view.withLock { view in
            defer { view = new }
            return view.level
        }
    }
}

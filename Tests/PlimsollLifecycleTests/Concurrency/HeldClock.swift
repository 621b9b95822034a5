import Plimsoll
import Synchronization

/// The machine's time, which stands still while a condition holds: a deadline that does not pass before the threads of
/// a busy machine have come as far as a test needs.
final class HeldClock: Sendable {
    private struct State {
        var elapsed = Duration.zero
        var last = ContinuousClock.now
        var wasHeld = true
    }

    private let state = Mutex(State())
    private let isHeld: @Sendable () -> Bool

    init(while isHeld: @escaping @Sendable () -> Bool) { self.isHeld = isHeld }

    var timekeeper: Timekeeper { Timekeeper(elapsed: { self.elapsed() }) }

    private func elapsed() -> Duration {
        let isHeldNow = isHeld(), now = ContinuousClock.now
        return state.withLock { state in
            // Time between two readings counts only if the condition held at neither.
            if !isHeldNow, !state.wasHeld, now > state.last { state.elapsed += now - state.last }
            state.wasHeld = isHeldNow
            state.last = max(state.last, now)
            return state.elapsed
        }
    }
}

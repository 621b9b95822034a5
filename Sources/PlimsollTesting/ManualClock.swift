public import Plimsoll
import Synchronization

/// A clock that moves only on request.
public final class ManualClock: Sendable {
    private struct State {
        var now = Duration.zero
        var asleep = Duration.zero
        /// 2026-01-01.
        var wall = Duration.seconds(1_767_225_600)
        var watchers: [@Sendable () -> Void] = []
    }

    private let state = Mutex(State())

    /// Largest single step while the process runs: threads check the time more often than that.
    public static let step = Duration.milliseconds(100)

    /// Creates a clock at zero.
    public init() {}

    /// Advances time as for a running process. Timers that become due fire in order, within this call.
    public func advance(by duration: Duration) {
        var left = duration
        while left > .zero {
            let step = min(left, Self.step)
            move(by: step)
            left -= step
        }
    }

    /// Advances time as for a frozen or stopped process: in one step.
    public func freeze(for duration: Duration) { move(by: duration) }

    /// Simulates sleep of the host: the time given to managers does not advance.
    public func sleepHost(for duration: Duration) {
        state.withLock { $0.asleep += duration }
        notify()
    }

    /// Simulates a change of the time of day.
    public func setWallClock(by step: Duration) { state.withLock { $0.wall += step } }

    /// The time source for a manager.
    package var timekeeper: Timekeeper {
        Timekeeper(
            elapsed: { [self] in state.withLock { $0.now } }, asleep: { [self] in state.withLock { $0.asleep } },
            onStep: { [self] watcher in state.withLock { $0.watchers.append(watcher) } },
            wall: { [self] in state.withLock { $0.wall + $0.now + $0.asleep } })
    }

    /// Advances time until the task is cancelled.
    package func pass() async {
        while !Task.isCancelled {
            advance(by: Self.step)
            await Task.yield()
        }
    }

    private func move(by duration: Duration) {
        state.withLock { $0.now += duration }
        notify()
    }

    private func notify() { for watcher in state.withLock({ $0.watchers }) { watcher() } }
}

extension ResourceManager {
    /// Creates a manager that uses the time of `clock` only.
    public convenience init(source: any PressureSource, policy: PressurePolicy = .standard, clock: ManualClock) {
        self.init(source: source, policy: policy, time: clock.timekeeper)
    }
}

public import Plimsoll
import Synchronization

/// Time that moves only when told.
public final class ManualClock: Sendable {
    private struct State {
        var now = Duration.zero
        var asleep = Duration.zero
        /// 2026-01-01.
        var wall = Duration.seconds(1_767_225_600)
        var watchers: [@Sendable () -> Void] = []
    }

    private let state = Mutex(State())

    /// The most by which time moves at once while the process runs: threads look more often than that.
    public static let step = Duration.milliseconds(100)

    /// A clock at zero.
    public init() {}

    /// Moves time on as it passes for a process that runs: what becomes due meanwhile is called in its order, within this call.
    public func advance(by duration: Duration) {
        var left = duration
        while left > .zero {
            let step = min(left, Self.step)
            move(by: step)
            left -= step
        }
    }

    /// Moves time on as it passes for a process that is frozen or stopped: at once.
    public func freeze(for duration: Duration) { move(by: duration) }

    /// The host sleeps and wakes: the time given to managers stands still.
    public func sleepHost(for duration: Duration) {
        state.withLock { $0.asleep += duration }
        tell()
    }

    /// Somebody sets the time of day.
    public func setWallClock(by step: Duration) { state.withLock { $0.wall += step } }

    /// The time to give to a manager.
    public var timekeeper: Timekeeper {
        Timekeeper(
            elapsed: { [self] in state.withLock { $0.now } }, asleep: { [self] in state.withLock { $0.asleep } },
            onStep: { [self] watcher in state.withLock { $0.watchers.append(watcher) } },
            wall: { [self] in state.withLock { $0.wall + $0.now + $0.asleep } })
    }

    /// Lets time pass until the task is cancelled.
    package func pass() async {
        while !Task.isCancelled {
            advance(by: Self.step)
            await Task.yield()
        }
    }

    private func move(by duration: Duration) {
        state.withLock { $0.now += duration }
        tell()
    }

    private func tell() { for watcher in state.withLock({ $0.watchers }) { watcher() } }
}

public import Plimsoll
import Synchronization

/// Time that moves only when told.
public final class ManualClock: Sendable {
    private let now = Mutex(Duration.zero)

    /// A clock at zero.
    public init() {}

    /// Moves time on.
    public func advance(by step: Duration) { now.withLock { $0 += step } }

    /// The time to give to a manager.
    public var timekeeper: Timekeeper { Timekeeper { [self] in now.withLock { $0 } } }
}

import Synchronization

/// The life cycle of the process: what it is doing, what it pauses, saves, hands back and takes up again on the way.
public final class Lifecycle: Sendable {
    let alarms: Alarms
    let threads: HandlerThreads
    let environment: Environment
    private let stateBits = Atomic<UInt8>(LifecycleState.notRunning.rawValue)

    init(alarms: Alarms, threads: HandlerThreads, environment: Environment) {
        self.alarms = alarms
        self.threads = threads
        self.environment = environment
    }

    /// The state in force: one atomic load, from any thread.
    public var state: LifecycleState { LifecycleState(rawValue: stateBits.load(ordering: .relaxed)) ?? .notRunning }
}

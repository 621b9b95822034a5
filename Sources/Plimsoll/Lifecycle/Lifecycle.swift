import Synchronization

/// The life cycle of the process: what it is doing, what it pauses, saves, hands back and takes up again on the way.
public final class Lifecycle: Sendable {
    let alarms: Alarms
    let threads: HandlerThreads
    /// What only one process may hold.
    public let exclusive: ExclusiveResources
    /// Data that is there at times only.
    public let protectedData: ProtectedData
    /// What is erased before others may see it, and the secrets.
    let scrub: ScrubSet
    let revocation: Revocation
    private let stateBits = Atomic<UInt8>(LifecycleState.notRunning.rawValue)

    init(alarms: Alarms, threads: HandlerThreads, time: Timekeeper, purgeables: PurgeableRegistry) {
        self.alarms = alarms
        self.threads = threads
        exclusive = ExclusiveResources(time: time, alarms: alarms, threads: threads)
        protectedData = ProtectedData(alarms: alarms)
        scrub = ScrubSet(alarms: alarms, threads: threads)
        revocation = Revocation(purgeables: purgeables, secrets: scrub.secrets, heartbeat: alarms.heartbeat)
    }

    /// The state in force: one atomic load, from any thread.
    public var state: LifecycleState { LifecycleState(rawValue: stateBits.load(ordering: .relaxed)) ?? .notRunning }
}

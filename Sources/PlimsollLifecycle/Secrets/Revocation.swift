import Plimsoll
import Synchronization

/// Purges all data of one tenant, account or credential (C56, C67).
final class Revocation: Sendable {
    /// Callbacks around a revocation. Set by the parts that admit requests and deliver events.
    struct Hooks: Sendable {
        /// Stops admission of new requests until `open`.
        var close: @Sendable () -> Void = {}
        /// Resumes admission.
        var open: @Sendable () -> Void = {}
        /// Notifies observers of changes of these credentials.
        var post: @Sendable (_ tag: String) -> Void = { _ in }
    }

    private let hooks = Mutex(Hooks())
    private let purgeables: PurgeableRegistry
    private let secrets: SecretRegistry
    private let heartbeat: Heartbeat

    /// Maximum number of purges of one purgeable. Entries that others insert during a purge are purged again.
    private static let rounds = 3

    init(purgeables: PurgeableRegistry, secrets: SecretRegistry, heartbeat: Heartbeat) {
        self.purgeables = purgeables
        self.secrets = secrets
        self.heartbeat = heartbeat
    }

    func connect(_ hooks: Hooks) { self.hooks.withLock { $0 = hooks } }

    func revoke(_ tag: String) -> ScrubReport {
        let hooks = hooks.withLock { $0 }
        let began = heartbeat.running
        hooks.close()
        var report = ScrubReport(reason: .revocation, tag: tag)
        let holders = purgeables.snapshot.compactMap { $0.purgeable as? any TagPurgeable }
        for holder in holders { purge(holder, tag, &report) }
        let (wiped, inUse) = secrets.wipe { $0.tags.contains(tag) }
        report.inUse = inUse.map(\.name)
        report.wiped = wiped.filter { secret in !inUse.contains { $0 === secret } }.map(\.name)
        report.took = heartbeat.running - began
        // Before requests are admitted, so that the first request finds all observers notified.
        hooks.post(tag)
        hooks.open()
        return report
    }

    private func purge(_ holder: any TagPurgeable, _ tag: String, _ report: inout ScrubReport) {
        for _ in 0..<Self.rounds {
            report.purged[holder.name, default: 0] += holder.purge(tag: tag)
            if holder.count(tag: tag) == 0 { return }
        }
        report.remaining[holder.name] = holder.count(tag: tag)
    }
}

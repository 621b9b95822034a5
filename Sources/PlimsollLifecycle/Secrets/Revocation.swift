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

    func revoke(_ tag: String) -> RevocationReport {
        let hooks = hooks.withLock { $0 }
        let began = heartbeat.running
        hooks.close()
        var report = RevocationReport(tag: tag)
        let holders = purgeables.snapshot.compactMap { $0.purgeable as? any TagPurgeable }
        for holder in holders { purge(holder, &report) }
        let (wiped, inUse) = secrets.wipe { $0.tags.contains(tag) }
        report.secretsInUse = inUse.map(\.name)
        report.secretsWiped = wiped.filter { secret in !inUse.contains { $0 === secret } }.map(\.name)
        report.took = heartbeat.running - began
        // Before requests are admitted, so that the first request finds all observers notified.
        hooks.post(tag)
        hooks.open()
        return report
    }

    private func purge(_ holder: any TagPurgeable, _ report: inout RevocationReport) {
        for _ in 0..<Self.rounds {
            report.purged[holder.name, default: 0] += holder.purge(tag: report.tag)
            if holder.count(tag: report.tag) == 0 { return }
        }
        report.remaining[holder.name] = holder.count(tag: report.tag)
    }
}

/// The result of a revocation: the purged entries, and those left.
public struct RevocationReport: Sendable, Hashable {
    /// The revoked tag.
    public var tag: String
    /// Number of entries removed from each registered purgeable that supports tags.
    public var purged: [String: Int] = [:]
    /// Number of entries found afterwards: another task keeps inserting them.
    public var remaining: [String: Int] = [:]
    /// Names of the secrets wiped.
    public var secretsWiped: [String] = []
    /// Names of secrets still in use. They are wiped when that use ends; no new use can begin.
    public var secretsInUse: [String] = []
    /// Running time that the revocation took.
    public var took = Duration.zero

    /// True if nothing with the tag is left.
    public var isClean: Bool { remaining.values.allSatisfy { $0 == 0 } && secretsInUse.isEmpty }

    init(tag: String) { self.tag = tag }
}

extension RevocationReport: CustomStringConvertible {
    public var description: String {
        var text = "revoked \(tag): \(purged.values.reduce(0, +)) entries, \(secretsWiped.count) secrets"
        let left = remaining.filter { $0.value > 0 }
        if !left.isEmpty {
            text +=
                ", remaining: "
                + left.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }.joined(separator: ", ")
        }
        if !secretsInUse.isEmpty { text += ", secrets in use: \(secretsInUse.joined(separator: ", "))" }
        return text
    }
}

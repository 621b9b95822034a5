import Synchronization

/// Has everything go that belongs to one tenant, account or credential (C56, C67).
final class Revocation: Sendable {
    /// What happens around it: set by whoever admits requests and delivers events.
    struct Hooks: Sendable {
        /// Admits nothing new until `open`.
        var close: @Sendable () -> Void = {}
        /// Lets it in again.
        var open: @Sendable () -> Void = {}
        /// Tells those who wait for changes of their credentials.
        var post: @Sendable (_ tag: String) -> Void = { _ in }
    }

    private let hooks = Mutex(Hooks())
    private let purgeables: PurgeableRegistry
    private let secrets: SecretRegistry
    private let heartbeat: Heartbeat

    /// What others put in while it is purged is purged again, so often.
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
        // Before anything is let in, so that the first request finds everybody told.
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

/// What went with a tag, and what did not.
public struct RevocationReport: Sendable, Hashable {
    /// The tag.
    public var tag: String
    /// Entries taken out of each registered holder that knows tags.
    public var purged: [String: Int] = [:]
    /// Entries found afterwards: somebody goes on putting them in.
    public var remaining: [String: Int] = [:]
    /// Names of the secrets wiped.
    public var secretsWiped: [String] = []
    /// Names of secrets that somebody was inside; they go when that ends, and nobody else gets in.
    public var secretsInUse: [String] = []
    /// How long it took, by running time.
    public var took = Duration.zero

    /// Whether nothing of it is left.
    public var isClean: Bool { remaining.values.allSatisfy { $0 == 0 } && secretsInUse.isEmpty }

    init(tag: String) { self.tag = tag }
}

extension RevocationReport: CustomStringConvertible {
    public var description: String {
        var text = "revoked \(tag): \(purged.values.reduce(0, +)) entries, \(secretsWiped.count) secrets"
        let left = remaining.filter { $0.value > 0 }
        if !left.isEmpty { text += ", remaining: " + left.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }.joined(separator: ", ") }
        if !secretsInUse.isEmpty { text += ", secrets in use: \(secretsInUse.joined(separator: ", "))" }
        return text
    }
}

extension Lifecycle {
    /// Has everything go that bears `tag`: entries of registered caches, loads under way of such, and secrets. Nothing new is admitted meanwhile; then it is
    /// counted that nothing is left, and whoever waits for changes of credentials is told. Background tasks go on: ending them is their owner's decision.
    ///
    /// Blocks for as long as the holders take; O(entries with that tag) for `PurgeableCache`.
    @discardableResult
    public func revokeCredentials(tag: String) -> RevocationReport { revocation.revoke(tag) }
}

extension ResourceManager {
    /// The same as `lifecycle.revokeCredentials(tag:)`.
    @discardableResult
    public func revoke(tag: String) -> RevocationReport { lifecycle.revokeCredentials(tag: tag) }
}

import Plimsoll
import Synchronization

/// The hooks and secrets to erase before another process may see the memory of this one.
///
/// Hooks run first, concurrently, under one budget. Then the secrets are wiped on the calling thread, so that a stuck
/// hook can't delay that.
final class ScrubSet: Sendable {
    fileprivate final class Hook: Sendable {
        let name: String
        let body: @Sendable () -> Void
        let gate = CallGate()

        init(_ name: String, _ body: @escaping @Sendable () -> Void) {
            self.name = name
            self.body = body
        }
    }

    /// Time for all hooks together, and for readers of secrets to finish.
    static let budget = Duration.seconds(1)

    let secrets = SecretRegistry()
    private let hooks = Mutex<[Hook]>([])
    private let lastReport = Mutex<ScrubReport?>(nil)
    private let alarms: Alarms
    private let threads: HandlerThreads

    init(alarms: Alarms, threads: HandlerThreads) {
        self.alarms = alarms
        self.threads = threads
    }

    func add(_ name: String, _ body: @escaping @Sendable () -> Void) -> Registration {
        let hook = Hook(name, body)
        hooks.withLock { $0.append(hook) }
        return Registration(hook.gate) { [weak self, weak hook] in
            let removed = self?.hooks.withLock { $0.remove(identicalTo: hook) }
            withExtendedLifetime(removed) {}
        }
    }

    var last: ScrubReport? { lastReport.withLock { $0 } }

    /// Runs every hook, then wipes the secrets. Blocks until that is done, or as long as `budget`.
    func run(_ reason: ScrubReport.Reason, within budget: Duration = ScrubSet.budget) -> ScrubReport {
        let began = alarms.heartbeat.running
        let hooks = hooks.withLock { $0 }
        let bodies = hooks.map { hook in { @Sendable in hook.run() } }
        let outcomes = BoundedCalls.run(blocking: bodies, within: budget, alarms: alarms, threads: threads)

        var report = ScrubReport(reason: reason)
        for (hook, outcome) in zip(hooks, outcomes) {
            if outcome == .done, !hook.isStillRunning {
                report.ran.append(hook.name)
            } else {
                report.overran.append(hook.name)
            }
        }
        let parker = Parker()
        let wipesAll = reason == .snapshot || reason == .termination
        let (wiped, inUse) = secrets.wipe(notifying: parker) { wipesAll || !$0.keepsInBackground }
        let left = awaitLeaving(inUse, parker, within: budget - (alarms.heartbeat.running - began))
        report.inUse = left.map(\.name)
        report.wiped = wiped.filter { secret in !left.contains { $0 === secret } }.map(\.name)
        report.took = alarms.heartbeat.running - began
        lastReport.withLock { $0 = report }
        return report
    }

    /// Returns those of `secrets` that are still in use at the end of `budget`.
    private func awaitLeaving(_ secrets: [Secret], _ parker: Parker, within budget: Duration) -> [Secret] {
        var left = secrets.filter(\.isInUse)
        guard !left.isEmpty, budget > .zero else { return left }
        let isOver = Switch()
        let alarm = alarms.set(.deadline, after: budget) {
            isOver.turnOn()
            parker.unpark()
        }
        while !left.isEmpty, !isOver.isOn {
            alarms.wait(on: parker)
            left = left.filter(\.isInUse)
        }
        alarm.cancel()
        return left
    }
}

extension ScrubSet.Hook {
    /// Runs the hook, unless an earlier call is still running.
    fileprivate func run() { _ = gate.call(body) }
    fileprivate var isStillRunning: Bool { gate.isBusy }
}

/// The result of a scrub, or of a revocation of credentials: data erased, and data left.
public struct ScrubReport: Sendable, Hashable {
    package enum Reason: String, Sendable, Hashable {
        /// The process goes to the background, from which it may be frozen without notice.
        case background
        /// The process woke up in the background, and data is erased anew (C46).
        case wake
        /// The process is about to be frozen.
        case freeze
        /// The memory of the process is about to be copied: a core dump, CRIU, a snapshot of a virtual machine. Secrets
        /// kept in the background are wiped too.
        case snapshot
        /// The process terminates. Secrets kept in the background are wiped too.
        case termination
        /// Credentials were revoked.
        case revocation
    }

    package var reason: Reason
    /// The revoked tag; `nil` for a scrub.
    public var tag: String?
    /// Hooks that finished, in the order in which they were added.
    public var ran: [String] = []
    /// Hooks that had not finished by the end of the budget: their data may not be erased.
    public var overran: [String] = []
    /// Number of revoked entries removed from each registered purgeable that supports tags.
    public var purged: [String: Int] = [:]
    /// Number of revoked entries found afterwards: another task keeps inserting them.
    public var remaining: [String: Int] = [:]
    /// Names of the secrets that had contents and are now wiped.
    public var wiped: [String] = []
    /// Names of secrets still in use. They are wiped when that use ends; no new use can begin.
    public var inUse: [String] = []
    /// Running time that the scrub took.
    public var took = Duration.zero

    /// True if everything was erased. If false, take no snapshot.
    public var isClean: Bool { overran.isEmpty && inUse.isEmpty && remaining.values.allSatisfy { $0 == 0 } }

    init(reason: Reason, tag: String? = nil) { (self.reason, self.tag) = (reason, tag) }
}

extension ScrubReport: CustomStringConvertible {
    public var description: String {
        var text =
            tag.map { "revoked \($0): \(purged.values.reduce(0, +)) entries" }
            ?? "scrub before \(reason.rawValue): \(ran.count) hooks"
        text += ", \(wiped.count) secrets wiped"
        let left = remaining.filter { $0.value > 0 }.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
        for (what, names) in [("overran", overran), ("remaining", left), ("in use", inUse)] where !names.isEmpty {
            text += ", \(what): \(names.joined(separator: ", "))"
        }
        return text
    }
}

public import Plimsoll
import Synchronization

/// The resources that only one process may hold. Released on the way to the background and reacquired on the way back
/// (C48, C49, C52, C53).
public final class ExclusiveResources: Sendable {
    private let resources = Mutex<[ExclusiveResource]>([])
    private let reports = Mutex<[ExclusiveReport]>([])
    let reconnects = Mutex<[String: ReconnectLimiter]>([:])
    let context: ExclusiveContext
    let alarms: Alarms
    private let threads: HandlerThreads

    /// Time for closing by force, beyond the deadline.
    static let forceBudget = Duration.milliseconds(500)
    /// Least time of each wave, even after slow earlier waves: releasing a lock takes microseconds.
    static let leastBudget = Duration.milliseconds(200)
    private static let mostReports = 64

    init(time: Timekeeper, alarms: Alarms, threads: HandlerThreads) {
        context = ExclusiveContext(time: time, heartbeat: alarms.heartbeat)
        self.alarms = alarms
        self.threads = threads
    }

    // MARK: Registering

    /// Registers `resource` for release on the way to the background and reacquisition on the way back, until the
    /// registration is cancelled.
    ///
    /// - Throws: `ExclusiveResourceError` if another resource has that name, or if the order of release would be
    ///   circular.
    /// - Complexity: O(resources and their `after:` names).
    @discardableResult
    public func add(_ resource: ExclusiveResource) throws -> Registration {
        try resources.withLock { resources in
            guard !resources.contains(where: { $0.name == resource.name }) else {
                throw ExclusiveResourceError(resource: resource.name, reason: .duplicateName)
            }
            if let cycle = ReleaseOrder.cycle(through: resource, in: resources) {
                throw ExclusiveResourceError(resource: resource.name, reason: .cycle(cycle))
            }
            resource.attach(to: context)
            resources.append(resource)
        }
        return Registration(CallGate()) { [weak self, weak resource] in
            let removed = self?.resources.withLock { $0.remove(identicalTo: resource) }
            withExtendedLifetime(removed) {}
        }
    }

    /// Names of the resources held now. In the background, these should have been released.
    public var held: [String] { resources.withLock { $0 }.filter(\.isHeld).map(\.name) }

    /// Uses and acquisitions that were refused because the process was in the background: the last 64.
    public var violations: [ExclusiveResourceError] { context.violations }

    /// Number of violations so far.
    public var violationCount: Int { context.violationCount }

    /// The reports of recent releases and reacquisitions, oldest first; at most 64.
    var history: [ExclusiveReport] { reports.withLock { $0 } }

    // MARK: To the background

    /// Releases all resources, dependents first, within `budget` of running time. Resources not released by then are
    /// closed by force and named. A resource whose release still hangs from an earlier call is named at once, and
    /// neither waited for nor released again.
    ///
    /// From this call on, no resource may be used or acquired. Blocks, slightly longer than `budget` if a resource
    /// takes the whole budget.
    @discardableResult
    func release(within budget: Duration) -> ExclusiveReport {
        let began = context.running, deadline = began + budget
        context.setClosed(true)
        var report = ExclusiveReport(step: .release)
        var late: [(ExclusiveResource, UInt64)] = []
        var hanging: [ExclusiveResource] = []
        for wave in ReleaseOrder.waves(of: resources.withLock { $0 }) {
            var turns: [(ExclusiveResource, UInt64)] = []
            for resource in wave {
                if resource.hangs {
                    report.overran.append(resource.name)
                    hanging.append(resource)
                } else if let turn = resource.beginRelease() {
                    turns.append((resource, turn))
                }
            }
            let context = context
            let bodies = turns.map { resource, turn -> BoundedCalls.Body in
                { try await resource.release(turn) { max(.zero, deadline - context.running) } }
            }
            let budget = max(Self.leastBudget, deadline - context.running)
            let outcomes = BoundedCalls.run(bodies, within: budget, alarms: alarms, threads: threads)
            for ((resource, turn), outcome) in zip(turns, outcomes) {
                switch outcome {
                case .done: report.done.append(resource.name)
                case .failed(let reason): report.failed[resource.name] = reason
                case .late: report.overran.append(resource.name)
                }
                if outcome != .done { late.append((resource, turn)) }
            }
        }
        force(late)
        for (resource, _) in late { resource.markLate() }
        report.stillHeld = (late.map(\.0) + hanging).filter(\.isHeld).map(\.name)
        report.took = context.running - began
        note(report)
        return report
    }

    private func force(_ late: [(ExclusiveResource, UInt64)]) {
        // Skip resources that were released meanwhile or failed only in draining, and those that only their own code
        // can close.
        let forced = late.filter { $0.forceBody != nil && $0.beginForce($1) }.map(\.0)
        let (context, threads) = (context, threads)
        let bodies = forced.map { resource in
            { @Sendable () -> Void in
                resource.forceBody?()
                resource.forced()
                // The close ended so late that the process is in front again.
                if !context.isClosed { threads.run { try? await resource.take() } }
            }
        }
        _ = BoundedCalls.run(blocking: bodies, within: Self.forceBudget, alarms: alarms, threads: threads)
    }

    // MARK: Back

    /// Reacquires the released and lost resources in reverse order, within `budget` of running time. Skips resources
    /// that depend on a resource that could not be reacquired.
    ///
    /// Uses are allowed from this call on. Blocks.
    @discardableResult
    func reacquire(within budget: Duration) -> ExclusiveReport {
        let began = context.running, deadline = began + budget
        if context.isClosed { context.suspectConnections() }
        context.setClosed(false)
        var report = ExclusiveReport(step: .reacquire)
        var missing: Set<String> = []
        for wave in ReleaseOrder.waves(of: resources.withLock { $0 }).reversed() {
            // An acquisition from before the background still hangs. Once that one has ended, the next one begins by
            // itself.
            let hanging = wave.filter(\.isAbandoned).map(\.name)
            report.overran += hanging
            missing.formUnion(hanging)
            let awaited = wave.filter { $0.isAwaited && !hanging.contains($0.name) }
            // On release, this resource comes `after:` the dependents. On the way back, every resource named by
            // `after:` depends on this one.
            let (ready, blocked) = awaited.reduce(into: ([], [])) {
                (split: inout ([ExclusiveResource], [ExclusiveResource]), resource) in
                if ReleaseOrder.dependencies(of: resource, in: resources.withLock { $0 }).isDisjoint(with: missing) {
                    split.0.append(resource)
                } else {
                    split.1.append(resource)
                }
            }
            let bodies = ready.map { resource -> BoundedCalls.Body in { try await resource.take() } }
            let outcomes = BoundedCalls.run(
                bodies, within: deadline - context.running, alarms: alarms, threads: threads)
            for (resource, outcome) in zip(ready, outcomes) {
                switch outcome {
                case .done: report.done.append(resource.name)
                case .failed(let reason): report.failed[resource.name] = reason
                case .late: report.overran.append(resource.name)
                }
                if outcome != .done { missing.insert(resource.name) }
            }
            for resource in blocked {
                report.failed[resource.name] = "a resource that it depends on could not be acquired"
                missing.insert(resource.name)
            }
        }
        report.took = context.running - began
        note(report)
        return report
    }

    // MARK: Gaps

    /// Handles a gap: every epoch rises, leases that may have run out are lost, and connections are suspect (T29,
    /// C50).
    ///
    /// Short; calls no user code. In the foreground, call `reacquire` afterwards.
    func gapEnded(_ gap: RunningGap) {
        context.verify {
            context.suspectConnections()
            for resource in resources.withLock({ $0 }) { resource.gapEnded() }
        }
    }

    private func note(_ report: ExclusiveReport) {
        reports.withLock { reports in
            if reports.count >= Self.mostReports { reports.removeFirst() }
            reports.append(report)
        }
    }
}

/// The result of one release or reacquisition of the exclusive resources.
struct ExclusiveReport: Sendable, Hashable {
    /// The direction: release or reacquisition.
    enum Step: String, Sendable, Hashable { case release, reacquire }

    /// The direction of this report.
    var step: Step
    /// Resources released, or reacquired, in this order.
    var done: [String] = []
    /// Resources not done by the deadline. On release, these were closed by force.
    var overran: [String] = []
    /// Resources whose own code threw, with the error.
    var failed: [String: String] = [:]
    /// Resources still held after a release: closing by force was not possible, or did not finish.
    var stillHeld: [String] = []
    /// The time taken, in running time.
    var took = Duration.zero

    init(step: Step) { self.step = step }
}

/// The order in which exclusive resources are released.
enum ReleaseOrder {
    /// Returns the resources in waves that may be released concurrently, each after all of `releasedAfter` that is
    /// registered.
    ///
    /// - Complexity: O(resources and their `after:` names).
    static func waves(of resources: [ExclusiveResource]) -> [[ExclusiveResource]] {
        let byName = Dictionary(resources.map { ($0.name, $0) }) { first, _ in first }
        var ranks: [String: Int] = [:]
        func rank(_ resource: ExclusiveResource) -> Int {
            if let rank = ranks[resource.name] { return rank }
            let rank = resource.releasedAfter.compactMap { byName[$0] }.map { rank($0) + 1 }.max() ?? 0
            ranks[resource.name] = rank
            return rank
        }
        var waves: [[ExclusiveResource]] = []
        for resource in resources {
            let rank = rank(resource)
            while waves.count <= rank { waves.append([]) }
            waves[rank].append(resource)
        }
        return waves
    }

    /// Returns the names of the resources that `resource` depends on: those released after it.
    static func dependencies(of resource: ExclusiveResource, in resources: [ExclusiveResource]) -> Set<String> {
        Set(resources.filter { $0.releasedAfter.contains(resource.name) }.map(\.name))
    }

    /// Returns a path from `resource` back to itself along `releasedAfter`; `nil` if there is none. Only the resource
    /// added last can close a cycle.
    static func cycle(through resource: ExclusiveResource, in resources: [ExclusiveResource]) -> [String]? {
        let byName = Dictionary((resources + [resource]).map { ($0.name, $0) }) { first, _ in first }
        var seen: Set<String> = []
        func path(from name: String) -> [String]? {
            guard let next = byName[name], seen.insert(name).inserted else { return nil }
            for earlier in next.releasedAfter {
                if earlier == resource.name { return [name, earlier] }
                if let path = path(from: earlier) { return [name] + path }
            }
            return nil
        }
        return path(from: resource.name)
    }
}

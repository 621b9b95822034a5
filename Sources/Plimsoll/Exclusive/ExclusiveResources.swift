import Synchronization

/// What only one process may hold, given back on the way to the background and taken again on the way back (C48, C49, C52, C53).
public final class ExclusiveResources: Sendable {
    private let resources = Mutex<[ExclusiveResource]>([])
    private let reports = Mutex<[ExclusiveReport]>([])
    let ground: ExclusiveGround
    let alarms: Alarms
    private let threads: HandlerThreads

    /// Time for closing by force, beyond the deadline.
    static let forceBudget = Duration.milliseconds(500)
    /// What each group has at least, however long those before it took: giving back a lock takes microseconds.
    static let leastBudget = Duration.milliseconds(200)
    private static let mostReports = 64

    init(time: Timekeeper, alarms: Alarms, threads: HandlerThreads) {
        ground = ExclusiveGround(time: time, heartbeat: alarms.heartbeat)
        self.alarms = alarms
        self.threads = threads
    }

    // MARK: Registering

    /// Has `resource` given back on the way to the background and taken again on the way back, until that is cancelled.
    ///
    /// - Throws: `ExclusiveResourceError` if there is another of its name, or if the order of release would go round.
    /// - Complexity: O(resources and what they come after).
    @discardableResult
    public func add(_ resource: ExclusiveResource) throws -> Registration {
        try resources.withLock { resources in
            guard !resources.contains(where: { $0.name == resource.name }) else {
                throw ExclusiveResourceError(resource: resource.name, reason: .duplicateName)
            }
            if let cycle = ReleaseOrder.cycle(through: resource, in: resources) {
                throw ExclusiveResourceError(resource: resource.name, reason: .cycle(cycle))
            }
            resource.stand(on: ground)
            resources.append(resource)
        }
        return Registration(CallGate()) { [weak self, weak resource] in
            let removed = self?.resources.withLock { resources in resources.firstIndex { $0 === resource }.map { resources.remove(at: $0) } }
            withExtendedLifetime(removed) {}
        }
    }

    /// Names of what is held now. In the background: what should have been given back.
    public var held: [String] { resources.withLock { $0 }.filter(\.isHeld).map(\.name) }

    /// Uses and takings that were refused because the process was in the background: the last 64.
    public var violations: [ExclusiveResourceError] { ground.violations }

    /// How many there have been.
    public var violationCount: Int { ground.violationCount }

    /// What was given back and taken again lately, oldest first; at most 64.
    public var history: [ExclusiveReport] { reports.withLock { $0 } }

    // MARK: To the background

    /// Gives everything back, dependents first, within `budget` of running time; what is not back by then is closed by force and named. From the call on nothing
    /// may be used or taken. Blocks, for a little longer than `budget` where somebody takes all of it.
    @discardableResult
    func release(within budget: Duration) -> ExclusiveReport {
        let began = ground.running, deadline = began + budget
        ground.setClosed(true)
        var report = ExclusiveReport(step: .release)
        var late: [(ExclusiveResource, UInt64)] = []
        for wave in ReleaseOrder.waves(of: resources.withLock { $0 }) {
            let turns = wave.compactMap { resource in resource.beginRelease().map { (resource, $0) } }
            let ground = ground
            let bodies = turns.map { resource, turn -> BoundedCalls.Body in
                { try await resource.release(turn) { max(.zero, deadline - ground.running) } }
            }
            let budget = max(Self.leastBudget, deadline - ground.running)
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
        force(late, &report)
        report.took = ground.running - began
        note(report)
        return report
    }

    private func force(_ late: [(ExclusiveResource, UInt64)], _ report: inout ExclusiveReport) {
        // Whatever has come to its end meanwhile, or failed only in draining, is left alone; so is what cannot be closed but by its own code.
        let forced = late.filter { $0.forceBody != nil && $0.beginForce($1) }.map(\.0)
        let (ground, threads) = (ground, threads)
        let bodies = forced.map { resource in
            { @Sendable () -> Void in
                resource.forceBody?()
                resource.forced()
                // So late that the process is in front again.
                if !ground.isClosed { threads.run { try? await resource.take() } }
            }
        }
        _ = BoundedCalls.run(blocking: bodies, within: Self.forceBudget, alarms: alarms, threads: threads)
        report.stillHeld = late.map(\.0).filter(\.isHeld).map(\.name)
    }

    // MARK: Back

    /// Takes again what was given back or lost, in reverse order, within `budget` of running time; what depends on something that could not be had is left.
    /// Uses are allowed from the call on. Blocks.
    @discardableResult
    func reacquire(within budget: Duration) -> ExclusiveReport {
        let began = ground.running, deadline = began + budget
        if ground.isClosed { ground.suspectConnections() }
        ground.setClosed(false)
        var report = ExclusiveReport(step: .reacquire)
        var missing: Set<String> = []
        for wave in ReleaseOrder.waves(of: resources.withLock { $0 }).reversed() {
            let awaited = wave.filter(\.isAwaited)
            // It comes `after:` its dependents on the way out, so on the way back whatever names it depends on it.
            let (ready, blocked) = awaited.reduce(into: ([], [])) { (split: inout ([ExclusiveResource], [ExclusiveResource]), resource) in
                if ReleaseOrder.dependencies(of: resource, in: resources.withLock { $0 }).isDisjoint(with: missing) {
                    split.0.append(resource)
                } else {
                    split.1.append(resource)
                }
            }
            let bodies = ready.map { resource -> BoundedCalls.Body in { try await resource.take() } }
            let outcomes = BoundedCalls.run(bodies, within: deadline - ground.running, alarms: alarms, threads: threads)
            for (resource, outcome) in zip(ready, outcomes) {
                switch outcome {
                case .done: report.done.append(resource.name)
                case .failed(let reason): report.failed[resource.name] = reason
                case .late: report.overran.append(resource.name)
                }
                if outcome != .done { missing.insert(resource.name) }
            }
            for resource in blocked {
                report.failed[resource.name] = "what it depends on could not be taken"
                missing.insert(resource.name)
            }
        }
        report.took = ground.running - began
        note(report)
        return report
    }

    // MARK: Gaps

    /// The process did not run for a while: every epoch rises, leases that may have run out are lost, connections are suspect (T29, C50).
    ///
    /// Short; calls nobody. In the foreground let `reacquire` follow.
    func gapEnded(_ gap: RunningGap) {
        ground.takeStock {
            ground.suspectConnections()
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

/// What became of the exclusive resources on one way.
public struct ExclusiveReport: Sendable, Hashable {
    /// Which way.
    public enum Step: String, Sendable, Hashable { case release, reacquire }

    /// Which way.
    public var step: Step
    /// Given back, or taken again, in this order.
    public var done: [String] = []
    /// Not within the deadline; when giving back these were closed by force.
    public var overran: [String] = []
    /// Those whose own code threw, with what it threw.
    public var failed: [String: String] = [:]
    /// Held although they should not be: closing by force was not possible, or did not come to its end.
    public var stillHeld: [String] = []
    /// How long it took, by running time.
    public var took = Duration.zero

    init(step: Step) { self.step = step }
}

extension Lifecycle {
    /// Names of the exclusive resources held now. In the background it should be empty; whoever is about to freeze the process asks.
    public var heldResources: [String] { exclusive.held }
}

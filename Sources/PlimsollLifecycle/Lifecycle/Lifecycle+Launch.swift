import Plimsoll
import Synchronization

extension Lifecycle {
    /// The progress of the launch.
    struct Launching: Sendable {
        var task: Task<Void, Never>?
        var isExplicit = false
        var report: LifecycleReport?
        var stage = Readiness.Stage.starting
        var warming: [String: Double] = [:]
        var hooks: [LaunchHook] = []
        /// True once the process is about to terminate.
        var refusesWork = false

        var hasBegun: Bool { task != nil }
    }

    struct LaunchHook: Sendable {
        var name: String
        var origin: String
        var willRestore: (@Sendable () async throws -> Void)?
        var didRestore: (@Sendable (RestoreOutcome) async throws -> Void)?
    }

    /// Launches the process: `willRestore` hooks, restoring, `didRestore` hooks, then the steps to `target` (C16,
    /// C19).
    ///
    /// If the process was not launched before, `ResourceManager.run` or the first request for a state launches into
    /// the foreground. A later call of this method then moves from there to `target`.
    ///
    /// - Parameter target: `.active` for a process that will serve, or `.background` for one that was woken for one
    ///   event: then no foreground work is set up (C16).
    /// - Returns: The result of the launch, with the time taken (C21).
    /// - Throws: `LifecycleError` if this method was called before, or with another target.
    @discardableResult
    public func launch(into target: LifecycleState = .active) async throws -> LifecycleReport {
        guard target == .active || target == .background else {
            throw LifecycleError("launch(into: \(target)) leads nowhere; launch into .active or .background")
        }
        let isSecond = launching.withLock { exchange(&$0.isExplicit, true) }
        if isSecond {
            throw LifecycleError(
                "cannot launch(into: \(target)) because the process has launched already; call launch once")
        }
        let (task, isNew) = beginLaunch(into: target)
        await task.value
        if !isNew { return try await reconcile(.launch) { $0.isInBackground = target == .background } }
        return launching.withLock { $0.report } ?? LifecycleReport(target: state)
    }

    /// Registers hooks for the launch (C19).
    ///
    /// `willRestore` is called when the process is up and its state is not yet restored. `didRestore` is called with
    /// the result for each state when the process is nearly ready. A hook must not wait for a state of the process:
    /// such a request waits for the launch.
    public func observeLaunch(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        willRestore: (@Sendable () async throws -> Void)? = nil,
        didRestore: (@Sendable (RestoreOutcome) async throws -> Void)? = nil
    ) {
        let hook = LaunchHook(name: name, origin: "\(file):\(line)", willRestore: willRestore, didRestore: didRestore)
        launching.withLock { $0.hooks.append(hook) }
    }

    /// Loads large or slow data while the process already serves with the data present. `readiness` reports the
    /// progress (C20).
    ///
    /// - Parameters:
    ///   - name: name of the load in `readiness`.
    ///   - body: the work, given a function that takes the progress from 0 to 1.
    public func warmUp(
        _ name: String, _ body: @escaping @Sendable (_ progress: @Sendable (Double) -> Void) async -> Void
    ) {
        launching.withLock { launching in
            launching.warming[name] = 0
            if launching.stage == .complete { launching.stage = .warming }
        }
        Task(priority: .background) { @concurrent [self] in
            await body { done in
                launching.withLock { if $0.warming[name] != nil { $0.warming[name] = min(1, max(0, done)) } }
            }
            launching.withLock { launching in
                launching.warming[name] = nil
                if launching.warming.isEmpty, launching.stage == .warming { launching.stage = .complete }
            }
        }
    }

    /// Tells whether the process should be sent work, and the reason if not.
    public var readiness: Readiness {
        let (stage, warming, refusesWork) = launching.withLock { ($0.stage, $0.warming, $0.refusesWork) }
        let state = state
        let reason: String? =
            switch stage {
            case _ where refusesWork: "the process is shutting down"
            case .starting: "not launched"
            case .restoring: "the state is being restored"
            case .warming, .complete: state == .active ? nil : "the process is \(state)"
            }
        return Readiness(stage: stage, isReady: reason == nil, reason: reason, warming: warming)
    }

    /// Calls `body` once the process is launched, on one of the manager's threads.
    package func whenLaunched(_ body: @escaping @Sendable () -> Void) {
        threads.run {
            await self.launchIfNeeded()
            body()
        }
    }

    /// Marks the process as about to terminate, and no longer ready.
    public func refuseWork() { launching.withLock { $0.refusesWork = true } }

    /// Launches the process into the foreground unless a launch has begun.
    func launchIfNeeded() async { await beginLaunch(into: .active).task.value }

    private func beginLaunch(into target: LifecycleState) -> (task: Task<Void, Never>, isNew: Bool) {
        launching.withLock { launching in
            if let task = launching.task { return (task, false) }
            let task = threads.run { await self.performLaunch(into: target) }
            launching.task = task
            return (task, true)
        }
    }

    private func performLaunch(into target: LifecycleState) async {
        let began = alarms.heartbeat.running
        let deadline = began + policy.backgroundDeadline
        let hooks = launching.withLock { launching in
            launching.stage = .restoring
            return launching.hooks
        }
        var own = LifecycleReport(target: target)
        own.add(
            await FanOut.call(
                hooks.compactMap { $0.handler($0.willRestore) }, .forward, until: deadline, alarms, threads))
        let restored = preservation.restore(evidence: previousEnd())
        own.failures +=
            restored.problems
            + restored.items.compactMap { item in
                if case .cleanStart(let reason) = item.result {
                    "the state \"\(item.name)\" starts clean: \(reason)"
                } else {
                    nil
                }
            }
        let handlers = hooks.compactMap { hook -> FanOut.Handler? in
            guard let body = hook.didRestore else { return nil }
            return hook.handler { try await body(restored) }
        }
        own.add(await FanOut.call(handlers, .forward, until: deadline, alarms, threads))

        desired.withLock { $0.isInBackground = target == .background }
        let steps = try? await unit.engine.request(.launch, within: policy.backgroundDeadline) {
            self.desired.withLock { $0.process }
        }
        if let steps { own.add(steps) }
        if let problem = preservation.launched() { own.failures.append(problem) }
        own.took = alarms.heartbeat.running - began
        launching.withLock { launching in
            launching.report = own
            launching.stage = launching.warming.isEmpty ? .complete : .warming
        }
        recordReport(own)
    }
}

extension Lifecycle.LaunchHook {
    fileprivate func handler(_ body: (@Sendable () async throws -> Void)?) -> FanOut.Handler? {
        body.map { FanOut.Handler(name: name, origin: origin, body: $0) }
    }
}

extension LifecycleReport {
    /// Adds the results of another report.
    mutating func add(_ other: LifecycleReport) {
        transitions += other.transitions
        overran += other.overran
        unreached += other.unreached
        failures += other.failures
        slowest = Array((slowest + other.slowest).sorted { $0.took > $1.took }.prefix(8))
        isSuperseded = isSuperseded || other.isSuperseded
    }
}

import Synchronization

/// The life cycle of the process: what it is doing, and what it pauses, saves, hands back and takes up again on the way.
///
/// A process that never asks is active from its launch, which `ResourceManager.run` makes if nobody else did, to its termination.
/// Start reading at `LifecycleEngine`; what a step consists of is told by `LifecycleStages`.
public final class Lifecycle: Sendable {
    /// How long steps may take.
    public let policy: LifecyclePolicy

    let alarms: Alarms
    let threads: HandlerThreads
    let environment: Environment
    /// What pauses outside the foreground and gives way when memory is short.
    public let pausables: QuiesceSet
    let preservation: Preservation
    let unit: LifecycleUnit
    /// What saves and erases, for whoever does so between two steps.
    let keeping: KeepingStages
    let tasks: BackgroundTaskRegistry
    /// What only one process may hold.
    public let exclusive: ExclusiveResources
    /// Data that is there at times only.
    public let protectedData: ProtectedData
    /// What is erased before others may see it, and the secrets.
    let scrub: ScrubSet
    let revocation: Revocation
    /// Purges what the background does not need, within a time; set by the manager.
    let backgroundPurge = BackgroundPurgeHook()
    /// What a process that ends itself saves beside the last step.
    let endingSaves = EndingSaves()
    let activations = ActivationInbox()
    let wish = Mutex(LifecycleWish())
    let launching = Mutex(Launching())
    let scenesByID = Mutex<[String: Scene]>([:])
    let transitionFeed = Feed<LifecycleTransition>()
    let reportFeed = Feed<LifecycleReport>(keeps: 64)
    /// Registers a holder with the manager.
    let registrar: @Sendable (any Purgeable) -> Registration
    /// Has warnings told.
    let observeWarnings: @Sendable (String, @escaping @Sendable (PressureEvent) -> Void) -> Registration
    /// Makes background tasks for a scene.
    let makeTasks: @Sendable () -> BackgroundTaskRegistry
    // Relaxed, both: who comes first makes the registration; ids need only differ.
    let evicts = Atomic<Bool>(false)
    private let nextID = Atomic<UInt64>(1)
    private let exit: @Sendable (Int32, String) -> Void

    init(
        policy: LifecyclePolicy, alarms: Alarms, threads: HandlerThreads, tasks: BackgroundTaskRegistry,
        makeTasks: @escaping @Sendable () -> BackgroundTaskRegistry,
        observeWarnings: @escaping @Sendable (String, @escaping @Sendable (PressureEvent) -> Void) -> Registration,
        registrar: @escaping @Sendable (any Purgeable) -> Registration,
        exit: @escaping @Sendable (Int32, String) -> Void, time: Timekeeper, purgeables: PurgeableRegistry, environment: Environment
    ) {
        self.environment = environment
        exclusive = ExclusiveResources(time: time, alarms: alarms, threads: threads)
        protectedData = ProtectedData(alarms: alarms)
        scrub = ScrubSet(alarms: alarms, threads: threads)
        revocation = Revocation(purgeables: purgeables, secrets: scrub.secrets, heartbeat: alarms.heartbeat)
        self.makeTasks = makeTasks
        self.observeWarnings = observeWarnings
        self.registrar = registrar
        self.policy = policy
        self.alarms = alarms
        self.threads = threads
        self.exit = exit
        self.tasks = tasks
        preservation = Preservation(alarms: alarms, threads: threads)
        let pausables = QuiesceSet(alarms: alarms)
        self.pausables = pausables
        let keeping = KeepingStages(
            exclusive: exclusive, scrub: scrub, preservation: preservation, threads: threads, purgeMemory: backgroundPurge.callAsFunction)
        self.keeping = keeping
        let stages = LifecycleStages(
            alarms: alarms, tasks: tasks, pausables: pausables, environment: environment, keeping: keeping, endingSaves: endingSaves)
        revocation.connect(
            .init(close: pausables.beginRevocation, open: pausables.endRevocation, post: { environment.post(EnvironmentChange(.credentials($0))) }))
        protectedData.observe { environment.post(EnvironmentChange(.protectedData, to: .flag($0))) }
        let (transitionFeed, reportFeed) = (transitionFeed, reportFeed)
        unit = LifecycleUnit(
            alarms, threads, stages.surroundings, onStep: { transitionFeed.add($0) }, onGap: { reportFeed.add($0) })
        alarms.whenGapEnds { [unit, weak self] gap in
            stages.gapEnded(gap)
            if let self { for scene in self.scenesByID.withLock({ Array($0.values) }) { scene.tasks.gapEnded(gap) } }
            unit.engine.gapEnded(gap)
            if gap.kind == .hostSleep { self?.wakeAfterSleep() }
        }
    }

    /// The state in force: one atomic load, from any thread (C18).
    public var state: LifecycleState { unit.engine.current }

    /// Each step once it is complete, from now on.
    public var transitions: AsyncStream<LifecycleTransition> { transitionFeed.stream }

    /// What the last requests and gaps came to, oldest first; at most 64.
    public var reports: [LifecycleReport] { reportFeed.last }

    // MARK: Taking part

    /// Takes part in the steps to and from the background, and to and from the front: each action with its inverse.
    ///
    /// On the way down all are called beside each other, on the way up one after the other in reverse, and only who was done with its action
    /// (C6). All handlers of a way share one deadline, `LifecyclePolicy.backgroundDeadline`; who overruns it is named. They run on the manager's threads and may block.
    ///
    /// - Parameters:
    ///   - name: what reports call it.
    ///   - file: where it is registered, for reports.
    ///   - line: the line there.
    ///   - onInactive: work stops coming; what is in flight goes on (C2).
    ///   - onActive: work comes, at launch and again after `onInactive`.
    ///   - onBackground: the last promised call before the process may be frozen or killed without a word (C4, C43).
    ///   - onForeground: undoes `onBackground`.
    @discardableResult
    public func observe(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        onInactive: (@Sendable (LifecycleContext) async throws -> Void)? = nil,
        onActive: (@Sendable (LifecycleContext) async throws -> Void)? = nil,
        onBackground: (@Sendable (LifecycleContext) async throws -> Void)? = nil,
        onForeground: (@Sendable (LifecycleContext) async throws -> Void)? = nil
    ) -> Registration {
        unit.observe(
            name, "\(file):\(line)", onInactive: onInactive, onActive: onActive, onBackground: onBackground, onForeground: onForeground)
    }

    /// Called once the process runs again after it was frozen, stopped, or asleep with its host, before any timer and any request (C17).
    @discardableResult
    public func onResume(
        _ name: String, file: StaticString = #fileID, line: UInt = #line, _ body: @escaping @Sendable (LifecycleContext) async throws -> Void
    ) -> Registration {
        unit.observers.add(.init(name, "\(file):\(line)", body), at: .resume)
    }

    /// Called last when the process terminates in good order, after all work was stopped and state saved; never when it is killed (C22, C24).
    @discardableResult
    public func onTerminate(
        _ name: String, file: StaticString = #fileID, line: UInt = #line, _ body: @escaping @Sendable (LifecycleContext) async throws -> Void
    ) -> Registration {
        unit.observers.add(.init(name, "\(file):\(line)", body), at: .terminate)
    }

    // MARK: Going somewhere

    /// Puts the process, and first each of its scenes, into the background.
    ///
    /// - Returns: what it came to; `isSuperseded` if somebody asked for something else before.
    /// - Throws: `LifecycleError` once it has terminated.
    @discardableResult
    public func enterBackground(cause: LifecycleCause) async throws -> LifecycleReport { try await settle(cause) { $0.isInBackground = true } }

    /// Takes the process, and after it the scenes that were in front, out of the background.
    ///
    /// - Throws: `LifecycleError` once it has terminated.
    @discardableResult
    public func enterForeground(cause: LifecycleCause) async throws -> LifecycleReport { try await settle(cause) { $0.isInBackground = false } }

    /// Something that passes keeps the process from serving: it is inactive until the interruption has ended (C8). Interruptions add up.
    ///
    /// - Throws: `LifecycleError` once it has terminated.
    @discardableResult
    public func interrupt(cause: LifecycleCause = .interruption) async throws -> LifecycleReport { try await settle(cause) { $0.interruptions += 1 } }

    /// An interruption has ended. After the last one the process is active again, unless `LifecyclePolicy.resumesManually`.
    ///
    /// - Throws: `LifecycleError` once it has terminated.
    @discardableResult
    public func endInterruption(cause: LifecycleCause = .interruption) async throws -> LifecycleReport {
        let waits = policy.resumesManually
        return try await settle(cause) { wish in
            guard wish.interruptions > 0 else { return }
            wish.interruptions -= 1
            if wish.interruptions == 0, waits { wish.awaitsResume = true }
        }
    }

    /// The word that `LifecyclePolicy.resumesManually` waits for (C25).
    ///
    /// - Throws: `LifecycleError` once it has terminated.
    @discardableResult
    public func resume(cause: LifecycleCause = .operator) async throws -> LifecycleReport { try await settle(cause) { $0.awaitsResume = false } }

    /// Terminates in good order: all work stops, state is saved, then who asked for it cleans up (C22). `ResourceManager.run` does it when it is cancelled.
    @discardableResult
    public func terminate(cause: LifecycleCause = .shutdown, within budget: Duration? = nil) async -> LifecycleReport {
        // Without a launch there is nothing to do. Who asks while it is under way waits for it as well: the process may end when this returns.
        guard launching.withLock({ $0.hasBegun }) else { return LifecycleReport(target: .notRunning) }
        let report = try? await settle(cause, within: budget ?? policy.terminationDeadline, endsTheLife: true) { $0.isTerminating = true }
        return report ?? LifecycleReport(target: .notRunning)
    }

    /// Changes what is wished, and brings the process and its scenes there: on the way down the scenes first, on the way up the process (C94).
    func settle(
        _ cause: LifecycleCause, within budget: Duration? = nil, endsTheLife: Bool = false,
        _ change: @escaping @Sendable (inout LifecycleWish) -> Void
    ) async throws -> LifecycleReport {
        if AsyncCallGate.isInside {
            // A handler that waits for its own step would wait until the deadline.
            threads.run { await AsyncCallGate.outside { _ = try? await self.settle(cause, within: budget, endsTheLife: endsTheLife, change) } }
            return LifecycleReport(target: wish.withLock { $0.process }, isSuperseded: true)
        }
        await launchIfNeeded()
        let isOver = wish.withLock { wish in
            defer { change(&wish) }
            return wish.isTerminating
        }
        if isOver, !endsTheLife {
            throw LifecycleError("a change (\(cause.rawValue)) was asked for after termination; a process that has terminated does not come back")
        }
        let budget = budget ?? policy.backgroundDeadline
        let aim: @Sendable () -> LifecycleState = { self.wish.withLock { $0.process } }
        if aim() < state { await settleScenes(cause, within: budget) }
        let report = try await unit.engine.request(cause, within: budget, aim)
        if aim() >= .inactive { await settleScenes(cause, within: budget) }
        book(report)
        return report
    }

    /// What `hostWillSleep` began ends, whoever was to say so.
    private func wakeAfterSleep() {
        guard wish.withLock({ $0.isHostAsleep }) else { return }
        threads.run { _ = try? await self.hostDidWake() }
    }

    func book(_ report: LifecycleReport) {
        reportFeed.add(report)
        guard case .end(let status) = policy.overrun, !report.overran.isEmpty else { return }
        exit(status, "plimsoll: \(report)\n")
    }

    func newID() -> UInt64 { nextID.wrappingAdd(1, ordering: .relaxed).oldValue }
}

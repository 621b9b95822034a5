public import Plimsoll
import Synchronization

/// The life cycle of the process: its state, and the work it pauses, saves, releases and resumes on each step.
///
/// `Lifecycle(manager)` returns the one life cycle of that manager, and joins it to the manager on the first call.
/// A process that never requests a state is active from launch to termination. `ResourceManager.run` launches the
/// process if the program did not. Start reading at `LifecycleEngine`; `LifecycleStages` lists the stages of a step.
public final class Lifecycle: Sendable, JoinsManager {
    private let currentPolicy = Mutex(LifecyclePolicy.standard)
    /// The time limits of the steps. A change holds for later steps.
    public var policy: LifecyclePolicy {
        get { currentPolicy.withLock { $0 } }
        set { currentPolicy.withLock { $0 = newValue } }
    }

    let alarms: Alarms
    let threads: HandlerThreads
    let environment: Environment
    /// The work that pauses outside the foreground and gives way when memory is short.
    public let pausables: QuiesceSet
    let preservation: Preservation
    let unit: LifecycleUnit
    /// The stages that save and erase, also used between two steps.
    let keeping: KeepingStages
    let tasks: BackgroundTaskRegistry
    /// The resources that only one process may hold.
    public let exclusive: ExclusiveResources
    /// Data that is accessible only at times.
    public let protectedData: ProtectedData
    /// The secrets, and other data that must be erased before others may see it.
    let scrub: ScrubSet
    let revocation: Revocation
    /// The state that a process which ends itself saves beside the last step.
    let endingSaves = EndingSaves()
    let activations = ActivationInbox()
    let desired = Mutex(DesiredState())
    let launching = Mutex(Launching())
    let scenesByID = Mutex<[String: Scene]>([:])
    let transitionFeed = Feed<LifecycleTransition>()
    let reportFeed = Feed<LifecycleReport>(keeps: 64)
    // Relaxed, both: the first caller makes the registration, and ids need only differ.
    let evicts = Atomic<Bool>(false)
    private let nextID = Atomic<UInt64>(1)
    // Relaxed: the thread that stores refers to this object meanwhile, so `deinit` comes after the store.
    private let gapListener = Atomic<UInt64>(0)
    private let stages: LifecycleStages
    // Parts of the manager, which retains this life cycle. The manager itself is not retained.
    private let observers: ObserverRegistry
    /// The background tasks of the process and of scenes.
    let sceneTasks: SceneTasks
    private let registrar: @Sendable (any Purgeable, PurgeablePlace) -> Registration
    private let exit: @Sendable (Int32, String) -> Void
    /// Returns the evidence on the end of the previous run; `nil` if there is none.
    let previousEnd: @Sendable () -> PreviousEnd?

    init(of manager: ResourceManager) {
        let parts = manager.parts
        let (alarms, threads, tasks, time) = (parts.alarms, parts.threads, parts.tasks, parts.time)
        (observers, sceneTasks, registrar, exit) = (parts.observers, parts.sceneTasks, parts.registrar, parts.exit)
        previousEnd = { [weak parts] in parts?.previousEnd }
        let environment = Environment(source: parts.source, alarms: alarms, threads: threads)
        self.environment = environment
        exclusive = ExclusiveResources(time: time, alarms: alarms, threads: threads)
        protectedData = ProtectedData(alarms: alarms)
        scrub = ScrubSet(alarms: alarms, threads: threads)
        revocation = Revocation(purgeables: parts.purgeables, secrets: scrub.secrets, heartbeat: alarms.heartbeat)
        self.alarms = alarms
        self.threads = threads
        self.tasks = tasks
        preservation = Preservation(alarms: alarms, threads: threads)
        let pausables = QuiesceSet(alarms: alarms)
        self.pausables = pausables
        let keeping = KeepingStages(
            exclusive: exclusive, scrub: scrub, preservation: preservation, threads: threads,
            purgeMemory: { [weak parts] in parts?.purgeForBackground(within: $0) })
        self.keeping = keeping
        let stages = LifecycleStages(
            alarms: alarms, tasks: tasks, pausables: pausables, environment: environment, keeping: keeping,
            endingSaves: endingSaves)
        self.stages = stages
        revocation.connect(
            .init(
                close: pausables.beginRevocation, open: pausables.endRevocation,
                post: { environment.post(EnvironmentChange(.credentials($0))) }))
        protectedData.observe { environment.post(EnvironmentChange(.protectedData, to: .flag($0))) }
        let (transitionFeed, reportFeed, activations) = (transitionFeed, reportFeed, activations)
        unit = LifecycleUnit(
            alarms, threads, stages.surroundings,
            onStep: { step in
                transitionFeed.add(step)
                if step.to == .active { activations.deliver() }
            }, onGap: { reportFeed.add($0) })
        activations.connect { [weak self] in
            guard let self, self.state == .active else { return }
            self.threads.run { await self.deliverActivations() }
        }
    }

    /// Takes over the gaps in which the process did not run. Called once the life cycle has joined its manager.
    func followGaps() {
        let number = alarms.whenGapEnds { [stages, unit, weak self] gap in
            stages.gapEnded(gap)
            if let self { for scene in self.scenesByID.withLock({ Array($0.values) }) { scene.tasks.gapEnded(gap) } }
            unit.engine.gapEnded(gap)
            if gap.kind == .hostSleep { self?.wakeAfterSleep() }
        }
        gapListener.store(number, ordering: .relaxed)
    }

    // The closure refers to the stages, and the stages to the alarms.
    deinit { alarms.ignoreGaps(gapListener.load(ordering: .relaxed)) }

    /// The current state: one atomic load, from any thread (C18).
    public var state: LifecycleState { unit.engine.current }

    /// The steps from now on, each once complete.
    public var transitions: AsyncStream<LifecycleTransition> { transitionFeed.stream }

    /// The reports of the last requests and gaps, oldest first; at most 64.
    public var reports: [LifecycleReport] { reportFeed.last }

    // MARK: Taking part

    /// Registers handlers for the steps to and from the background, and to and from the front. Each action has an
    /// inverse.
    ///
    /// On the way down, all handlers are called concurrently. On the way up they are called one after the other in
    /// reverse, and only those whose action completed (C6). A handler of the way up that others hold up past the next
    /// way down is left out. All handlers of one change share one deadline, `LifecyclePolicy.backgroundDeadline`.
    /// Reports name the handlers that overrun the deadline. Handlers run on the manager's threads and may block.
    ///
    /// - Parameters:
    ///   - name: name used in reports.
    ///   - file: file of the registration, for reports.
    ///   - line: line of the registration.
    ///   - onInactive: called when work stops coming; work in flight goes on (C2).
    ///   - onActive: called when work comes, at launch and again after `onInactive`.
    ///   - onBackground: last promised call before the process may be frozen or killed without notice (C4, C43).
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
            name, "\(file):\(line)", onInactive: onInactive, onActive: onActive, onBackground: onBackground,
            onForeground: onForeground)
    }

    /// Registers a handler that is called once the process runs again after a freeze, a stop or a host sleep. The
    /// handler runs before any timer and any request (C17).
    @discardableResult
    public func onResume(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        _ body: @escaping @Sendable (LifecycleContext) async throws -> Void
    ) -> Registration {
        unit.observers.add(.init(name, "\(file):\(line)", body), at: .resume)
    }

    /// Registers a handler that is called last when the process terminates in good order, after all work was stopped
    /// and state saved. Not called when the process is killed (C22, C24).
    @discardableResult
    public func onTerminate(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        _ body: @escaping @Sendable (LifecycleContext) async throws -> Void
    ) -> Registration {
        unit.observers.add(.init(name, "\(file):\(line)", body), at: .terminate)
    }

    // MARK: Going somewhere

    /// Puts the process into the background, after each of its scenes.
    ///
    /// - Returns: The report of the change; `isSuperseded` is true if another state was requested before.
    /// - Throws: `LifecycleError` once the process has terminated.
    @discardableResult
    public func enterBackground(cause: LifecycleCause) async throws -> LifecycleReport {
        try await reconcile(cause) { $0.isInBackground = true }
    }

    /// Takes the process out of the background, and then the scenes that were in front.
    ///
    /// - Throws: `LifecycleError` once the process has terminated.
    @discardableResult
    public func enterForeground(cause: LifecycleCause) async throws -> LifecycleReport {
        try await reconcile(cause) { $0.isInBackground = false }
    }

    /// Begins an interruption: a temporary condition keeps the process inactive until the interruption has ended
    /// (C8). Interruptions add up.
    ///
    /// - Throws: `LifecycleError` once the process has terminated.
    @discardableResult
    public func interrupt(cause: LifecycleCause = .interruption) async throws -> LifecycleReport {
        try await reconcile(cause) { $0.interruptions += 1 }
    }

    /// Ends an interruption. After the last one the process is active again, unless
    /// `LifecyclePolicy.resumesManually`.
    ///
    /// - Throws: `LifecycleError` once the process has terminated.
    @discardableResult
    public func endInterruption(cause: LifecycleCause = .interruption) async throws -> LifecycleReport {
        let waits = policy.resumesManually
        return try await reconcile(cause) { desired in
            guard desired.interruptions > 0 else { return }
            desired.interruptions -= 1
            if desired.interruptions == 0, waits { desired.awaitsResume = true }
        }
    }

    /// Resumes the process after an interruption, as `LifecyclePolicy.resumesManually` requires (C25).
    ///
    /// - Throws: `LifecycleError` once the process has terminated.
    @discardableResult
    public func resume(cause: LifecycleCause = .operator) async throws -> LifecycleReport {
        try await reconcile(cause) { $0.awaitsResume = false }
    }

    /// Terminates in good order: all work stops, state is saved, then the `onTerminate` handlers clean up (C22).
    /// `ResourceManager.run` calls this method when cancelled.
    @discardableResult
    public func terminate(cause: LifecycleCause = .shutdown, within budget: Duration? = nil) async -> LifecycleReport {
        // Without a launch there is nothing to do. During a launch the caller waits too: the process may end when
        // this method returns.
        guard launching.withLock({ $0.hasBegun }) else { return LifecycleReport(target: .notRunning) }
        let report = try? await reconcile(cause, within: budget ?? policy.terminationDeadline, endsTheLife: true) {
            $0.isTerminating = true
        }
        return report ?? LifecycleReport(target: .notRunning)
    }

    /// Changes the desired state, and brings the process and its scenes there. Scenes go first on the way down; the
    /// process goes first on the way up (C94).
    func reconcile(
        _ cause: LifecycleCause, within budget: Duration? = nil, endsTheLife: Bool = false,
        _ change: @escaping @Sendable (inout DesiredState) -> Void
    ) async throws -> LifecycleReport {
        if AsyncCallGate.isInside {
            // A handler that waited for its own step would wait until the deadline.
            threads.run {
                await AsyncCallGate.outside {
                    _ = try? await self.reconcile(cause, within: budget, endsTheLife: endsTheLife, change)
                }
            }
            return LifecycleReport(target: desired.withLock { $0.process }, isSuperseded: true)
        }
        await launchIfNeeded()
        let (isOver, wanted) = desired.withLock { desired in
            let isOver = desired.isTerminating
            change(&desired)
            return (isOver, desired.process)
        }
        if isOver, !endsTheLife {
            throw LifecycleError(
                "cannot change the state (\(cause.rawValue)) because the process has terminated; request no change after termination"
            )
        }
        let budget = budget ?? policy.backgroundDeadline
        let aim: @Sendable () -> LifecycleState = { self.desired.withLock { $0.process } }
        if aim() < state { await reconcileScenes(cause, within: budget) }
        var report = try await unit.engine.request(cause, within: budget, aim)
        // Another state was requested before this request came to the engine.
        if report.target != wanted { report.isSuperseded = true }
        if aim() >= .inactive, scenesByID.withLock({ !$0.isEmpty }) {
            // Another request may have taken over the way up, and the process is not there yet.
            try? await followScenes(cause, upTo: aim)
            await reconcileScenes(cause, within: budget)
        }
        recordReport(report)
        return report
    }

    /// Ends the host sleep that `hostWillSleep` began, even if the program does not call `hostDidWake`.
    private func wakeAfterSleep() {
        guard desired.withLock({ $0.isHostAsleep }) else { return }
        threads.run { _ = try? await self.hostDidWake() }
    }

    func recordReport(_ report: LifecycleReport) {
        reportFeed.add(report)
        guard let status = policy.overrunStatus, !report.overran.isEmpty else { return }
        exit(status, "plimsoll: \(report)\n")
    }

    /// Registers a purgeable of a scene with the manager.
    func register(_ purgeable: any Purgeable) -> Registration { registrar(purgeable, PurgeablePlace()) }

    /// Registers a handler for pressure warnings.
    func observeWarnings(_ name: String, _ body: @escaping @Sendable (PressureEvent) -> Void) -> Registration {
        observers.observe(.warning, name, body)
    }

    func makeTasks() -> BackgroundTaskRegistry { sceneTasks.make() }

    func newID() -> UInt64 { nextID.wrappingAdd(1, ordering: .relaxed).oldValue }
}

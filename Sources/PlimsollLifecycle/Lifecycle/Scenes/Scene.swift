public import Plimsoll
import Synchronization

/// A part of the process with a separate life cycle: a tenant, a shard, a session, a listener, a worker (C93).
///
/// A scene has its own state, handlers, deadlines, caches, and background tasks with their own allowance. The state
/// of the process is the greatest of the scenes' states (C94). A scene that stays in the background is suspended
/// after a while (`LifecyclePolicy.sceneSuspendsAfter`). A scene in the background or suspended may be disconnected
/// at any time to make room; the snapshot is written first (C96).
public final class Scene: Sendable {
    struct Contents: Sendable {
        var wanted: LifecycleState
        var lastUsed: Duration
        var holders: [Holder] = []
        var declared: [@Sendable () -> Int] = []
        /// The registrations for memory warnings, which end with the scene.
        var warnings: [Registration] = []
        var preserved: PreservedItem?
        /// True once preserved state has been restored. State that is preserved later is restored at once.
        var hasRestored = false
        /// True once the scene is configured and restored. The connecting task then takes the first step.
        var isReady = false
        var connecting: Task<Void, Never>?
        /// True if the scene was hidden so long that the scene stays suspended until the next request.
        var rests = false
        var hiddenSince = Duration.zero
        /// The alarm that checks if the scene is to be suspended.
        var restAlarm: Alarms.Alarm?
    }

    struct Holder: Sendable {
        var purgeable: any Purgeable
        var registration: Registration
        var purgesOnBackground: Bool
    }

    /// The unique id of the scene.
    public let id: String
    /// The reason for which the scene was connected.
    public let reason: LifecycleCause
    /// Runs tasks that prefer this executor (`Task(executorPreference:)`), except while the scene is suspended. Then
    /// the tasks stop at their next suspension point (C97).
    public let executor: PausableExecutor
    /// The background tasks of this scene.
    let tasks: BackgroundTaskRegistry
    /// The data that is erased before the scene's state is saved.
    let scrub: ScrubSet
    let unit: LifecycleUnit
    let lifecycle: Lifecycle
    /// The id under which the process counts the state that the scene requests.
    let claim: UInt64
    let contents: Mutex<Contents>

    init(_ id: String, _ reason: LifecycleCause, in lifecycle: Lifecycle) {
        self.id = id
        self.reason = reason
        self.lifecycle = lifecycle
        claim = lifecycle.newID()
        let wanted: LifecycleState = reason == .systemRequest ? .background : .active
        contents = Mutex(Contents(wanted: wanted, lastUsed: lifecycle.alarms.heartbeat.running))
        tasks = lifecycle.makeTasks()
        scrub = ScrubSet(alarms: lifecycle.alarms, threads: lifecycle.threads)
        executor = PausableExecutor("scene \(id)")
        let stages = SceneStages(tasks: tasks, executor: executor)
        unit = LifecycleUnit(
            lifecycle.alarms, lifecycle.threads, stages.surroundings,
            onStep: { [owner = stages.scene] step in owner.value?.stands(at: step.to) })
        stages.scene.set(self)
        tasks.listen { $0.whenIdle = { [weak self] in self?.watchIdleness() } }
    }

    deinit {
        contents.withLock { $0.restAlarm }?.cancel()
        tasks.detach()
    }

    /// The current state: one atomic load, from any thread.
    public var state: LifecycleState { unit.engine.current }

    /// Returns once the scene has come up.
    ///
    /// A handler of the process must not wait for a scene that was connected before: the scene waits for the process,
    /// and the process for the handler. For a scene that the handler connects, this method may return before.
    public func connected() async { await contents.withLock { $0.connecting }?.value }

    // MARK: Taking part

    /// Registers handlers for the steps of the scene, as `Lifecycle.observe` does for those of the process (C97).
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

    /// Registers a handler that is called on disconnection, to clean up state shared with others. The snapshot has
    /// been written by then.
    @discardableResult
    public func onDisconnect(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        _ body: @escaping @Sendable (LifecycleContext) async throws -> Void
    ) -> Registration {
        unit.observers.add(.init(name, "\(file):\(line)", body), at: .terminate)
    }

    // MARK: Memory

    /// Registers a cache of this scene with the manager. The cache is released entirely when the scene is
    /// disconnected, unless the registration was cancelled before.
    ///
    /// - Parameters:
    ///   - purgeable: object that holds memory and can release memory.
    ///   - purgesOnBackground: true to release the whole cache on this scene's way to the background, for caches kept
    ///     for speed only (C87).
    @discardableResult
    public func register(_ purgeable: any Purgeable, purgesOnBackground: Bool = false) -> Registration {
        let registration = lifecycle.register(purgeable)
        contents.withLock {
            $0.holders.append(
                Holder(purgeable: purgeable, registration: registration, purgesOnBackground: purgesOnBackground))
        }
        return Registration(close: registration.cancel) { [weak self] in
            let gone = self?.contents.withLock { contents in
                contents.holders.firstIndex { $0.registration === registration }.map { contents.holders.remove(at: $0) }
            }
            withExtendedLifetime(gone) {}
        }
    }

    /// Declares memory, besides the caches, that a disconnection frees, so that the largest scene is found.
    /// `byteCount` may be called on any thread.
    public func declare(byteCount: @escaping @Sendable () -> Int) {
        contents.withLock { $0.declared.append(byteCount) }
    }

    /// The bytes that a disconnection would free, as reported by the purgeables.
    public var byteCount: Int {
        let (holders, declared) = contents.withLock { ($0.holders.map(\.purgeable), $0.declared) }
        // Saturating: a purgeable may report any number.
        return (holders.map(\.heldBytes) + declared.map { $0() }).reduce(ByteCount.zero) { $0 + ByteCount(max(0, $1)) }
            .bytes
    }

    /// Marks the scene as used now. Of scenes of equal size, the one unused for longest is evicted first.
    public func touch() {
        let now = lifecycle.alarms.heartbeat.running
        contents.withLock { $0.lastUsed = now }
    }

    // MARK: Changing state

    /// Brings the scene to the front, and the process too, unless the process is held below.
    ///
    /// - Throws: `LifecycleError` once the scene is disconnected.
    @discardableResult
    public func enterForeground(cause: LifecycleCause) async throws -> LifecycleReport { try await go(.active, cause) }

    /// Puts the scene into the background. The process follows if this was the last scene in front.
    ///
    /// - Throws: `LifecycleError` once the scene is disconnected.
    @discardableResult
    public func enterBackground(cause: LifecycleCause) async throws -> LifecycleReport {
        try await go(.background, cause)
    }

    /// Suspends the scene: no code of the scene may run until the scene is brought back.
    ///
    /// - Throws: `LifecycleError` once the scene is disconnected.
    @discardableResult
    public func suspend(cause: LifecycleCause) async throws -> LifecycleReport { try await go(.suspended, cause) }

    /// Ends the scene: writes the snapshot, calls `onDisconnect` handlers and releases the caches. Idempotent and
    /// final: from this call on, the scene enters no other state.
    @discardableResult
    public func disconnect(cause: LifecycleCause) async -> LifecycleReport {
        (try? await go(.notRunning, cause)) ?? LifecycleReport(target: .notRunning)
    }

    func go(_ wanted: LifecycleState, _ cause: LifecycleCause) async throws -> LifecycleReport {
        touch()
        let isOver = contents.withLock { contents in
            if contents.wanted == .notRunning, wanted > .notRunning { return true }
            (contents.wanted, contents.rests) = (wanted, false)
            // Under the same lock: of two requests at once, the same one decides for the scene and for the process.
            lifecycle.desired.withLock { if $0.claims[claim] != nil { $0.claims[claim]?.state = wanted } }
            return false
        }
        if isOver {
            throw LifecycleError(
                "cannot make scene \(id) \(wanted) (\(cause.rawValue)) because its disconnection was requested; connect a scene with that id again"
            )
        }
        // The connection waits for steps of the process and of the scene, and such a step for the handler that asks.
        let isAwaited = unit.mayAwaitCaller || lifecycle.unit.mayAwaitCaller
        if wanted > .notRunning, !isAwaited { await connected() }
        return try await reconcile(cause, within: lifecycle.policy.backgroundDeadline)
    }

    /// The desired state of the scene.
    var aim: LifecycleState {
        let (wanted, rests) = contents.withLock { ($0.wanted, $0.rests) }
        let aim = lifecycle.desired.withLock { $0.scene(wanted) }
        return rests && aim == .background ? .suspended : aim
    }

    /// True if the scene may take steps. A scene that is being connected may only end.
    var takesSteps: Bool { contents.withLock { $0.isReady } || aim == .notRunning }

    /// Moves the scene to the desired state: after the process on the way up, before the process on the way down. The
    /// connecting task does this for a scene that is not ready.
    func reconcile(_ cause: LifecycleCause, within budget: Duration) async throws -> LifecycleReport {
        guard takesSteps else { return LifecycleReport(target: aim, isSuperseded: true) }
        let rises = aim > state
        if unit.mayAwaitCaller || rises && AsyncCallGate.isInside && lifecycle.state < aim {
            // The scene's own step, or the process, which goes first, may be waiting for the handler that asks.
            lifecycle.threads.run {
                await AsyncCallGate.outside { _ = try? await self.reconcile(cause, within: budget) }
            }
            return LifecycleReport(target: aim, isSuperseded: true)
        }
        if rises { try await lifecycle.followScenes(cause, upTo: { self.aim }) }
        let report = try await follow(cause, within: budget)
        if !rises { try? await lifecycle.followScenes(cause) }
        return report
    }

    /// Records the state below which the process must not go before the scene does.
    func stands(at state: LifecycleState) {
        lifecycle.desired.withLock { if $0.claims[claim] != nil { $0.claims[claim]?.footing = state } }
    }

    /// Moves the scene to the desired state, without moving the process.
    func follow(_ cause: LifecycleCause, within budget: Duration) async throws -> LifecycleReport {
        let report = try await unit.engine.request(cause, within: budget) { self.aim }
        // Not `state`: a superseded request finds the new state while the scene still saves.
        if report.target == .notRunning, !report.isSuperseded { lifecycle.forget(self) }
        lifecycle.recordReport(report)
        return report
    }
}

extension Scene: CustomStringConvertible {
    public var description: String { "scene \(id) (\(state))" }
}

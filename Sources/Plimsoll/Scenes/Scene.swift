import Synchronization

/// A part of the process with a life cycle of its own: a tenant, a shard, a session, a listener, a worker (C93).
///
/// A scene has its own state, handlers, deadlines, background tasks with their own allowance, and caches; the process is where the greatest of its scenes is
/// (C94). A scene that stays in the background is suspended after a while (`LifecyclePolicy.sceneSuspendsAfter`). In the background or suspended it may be
/// disconnected at any time to make room, its snapshot written first (C96).
public final class Scene: Sendable {
    /// Why a scene is connected: where it comes up (C95).
    public enum Reason: String, Sendable, Hashable {
        /// Somebody waits for it: it comes up active.
        case userRequest
        /// Something is to be done with it: it comes up in the background.
        case systemRequest
    }

    struct Contents: Sendable {
        var wanted: LifecycleState
        var lastUsed: Duration
        var holders: [Holder] = []
        var declared: [@Sendable () -> Int] = []
        var preserved: PreservedItem?
        /// Whether what was kept has been given back: what is kept from now on is given back at once.
        var hasRestored = false
        var connecting: Task<Void, Never>?
        /// Whether it was hidden for so long that it is suspended until somebody wants it.
        var rests = false
        var hiddenSince = Duration.zero
        /// Looks whether it is to rest.
        var restAlarm: Alarms.Alarm?
    }

    struct Holder: Sendable {
        var purgeable: any Purgeable
        var registration: Registration
        var purgesOnBackground: Bool
    }

    /// What tells it from others.
    public let id: String
    /// Why it was connected.
    public let reason: Reason
    /// Runs tasks that prefer it (`Task(executorPreference:)`), except while the scene is suspended: then they stop at their next suspension point (C97).
    public let executor: PausableExecutor
    /// Background tasks of its own.
    let tasks: BackgroundTaskRegistry
    /// What is erased before its state is saved.
    let scrub: ScrubSet
    let unit: LifecycleUnit
    let lifecycle: Lifecycle
    /// Under which the process counts what it wants.
    let claim: UInt64
    let contents: Mutex<Contents>

    init(_ id: String, _ reason: Reason, in lifecycle: Lifecycle) {
        self.id = id
        self.reason = reason
        self.lifecycle = lifecycle
        claim = lifecycle.newID()
        let wanted: LifecycleState = reason == .userRequest ? .active : .background
        contents = Mutex(Contents(wanted: wanted, lastUsed: lifecycle.alarms.heartbeat.running))
        tasks = lifecycle.makeTasks()
        scrub = ScrubSet(alarms: lifecycle.alarms, threads: lifecycle.threads)
        executor = PausableExecutor("scene \(id)")
        let stages = SceneStages(tasks: tasks, executor: executor)
        unit = LifecycleUnit(lifecycle.alarms, lifecycle.threads, stages.surroundings, onStep: { _ in })
        stages.scene.set(self)
        tasks.listen { $0.whenIdle = { [weak self] in self?.watchIdleness() } }
    }

    deinit {
        contents.withLock { $0.restAlarm }?.cancel()
        tasks.detach()
    }

    /// The state in force: one atomic load, from any thread.
    public var state: LifecycleState { unit.engine.current }

    /// Returns once it has come up.
    public func connected() async { await contents.withLock { $0.connecting }?.value }

    // MARK: Taking part

    /// Takes part in its steps, as `Lifecycle.observe` does in those of the process (C97).
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

    /// Called when it is disconnected: cleans up what it shared with others. Its snapshot has been written by then.
    @discardableResult
    public func onDisconnect(
        _ name: String, file: StaticString = #fileID, line: UInt = #line, _ body: @escaping @Sendable (LifecycleContext) async throws -> Void
    ) -> Registration {
        unit.observers.add(.init(name, "\(file):\(line)", body), at: .terminate)
    }

    // MARK: What it holds

    /// Registers a cache of this scene with the manager; let go of entirely when the scene is disconnected.
    ///
    /// - Parameters:
    ///   - purgeable: what holds memory and can let go of it.
    ///   - purgesOnBackground: whether it lets go of everything on this scene's way to the background: for what is kept for speed only (C87).
    @discardableResult
    public func register(_ purgeable: any Purgeable, purgesOnBackground: Bool = false) -> Registration {
        let registration = lifecycle.registrar(purgeable)
        contents.withLock { $0.holders.append(Holder(purgeable: purgeable, registration: registration, purgesOnBackground: purgesOnBackground)) }
        return registration
    }

    /// Declares memory that a disconnection frees besides its caches, so that the largest is found. May be asked on any thread.
    public func declare(byteCount: @escaping @Sendable () -> Int) { contents.withLock { $0.declared.append(byteCount) } }

    /// What a disconnection would free, as its holders say.
    public var byteCount: Int {
        let (holders, declared) = contents.withLock { ($0.holders.map(\.purgeable), $0.declared) }
        // Saturating: a purgeable may say anything.
        return (holders.map(\.heldBytes) + declared.map { $0() }).reduce(ByteCount.zero) { $0 + ByteCount(max(0, $1)) }.bytes
    }

    /// Says that it was used: of scenes as large as each other the one unused for longest goes first.
    public func touch() {
        let now = lifecycle.alarms.heartbeat.running
        contents.withLock { $0.lastUsed = now }
    }

    // MARK: Going somewhere

    /// Brings it to the front, and the process with it, as far as the process is not held below.
    ///
    /// - Throws: `LifecycleError` once it is disconnected.
    @discardableResult
    public func enterForeground(cause: LifecycleCause) async throws -> LifecycleReport { try await go(.active, cause) }

    /// Puts it into the background; the process follows if it was the last in front.
    ///
    /// - Throws: `LifecycleError` once it is disconnected.
    @discardableResult
    public func enterBackground(cause: LifecycleCause) async throws -> LifecycleReport { try await go(.background, cause) }

    /// Suspends it: it must not run until it is brought back.
    ///
    /// - Throws: `LifecycleError` once it is disconnected.
    @discardableResult
    public func suspend(cause: LifecycleCause) async throws -> LifecycleReport { try await go(.suspended, cause) }

    /// Ends it: its snapshot is written, `onDisconnect` called, its caches let go of. Idempotent, and final: from the call on the scene goes nowhere else.
    @discardableResult
    public func disconnect(cause: LifecycleCause) async -> LifecycleReport {
        (try? await go(.notRunning, cause)) ?? LifecycleReport(target: .notRunning)
    }

    func go(_ wanted: LifecycleState, _ cause: LifecycleCause) async throws -> LifecycleReport {
        touch()
        let isOver = contents.withLock { contents in
            if contents.wanted == .notRunning, wanted > .notRunning { return true }
            (contents.wanted, contents.rests) = (wanted, false)
            return false
        }
        if isOver {
            throw LifecycleError(
                "scene \(id) was asked to be \(wanted) (\(cause.rawValue)) after its disconnection was asked for; connect a scene of that id again")
        }
        lifecycle.wish.withLock { if $0.claims[claim] != nil { $0.claims[claim]?.state = wanted } }
        return try await settle(cause, within: lifecycle.policy.backgroundDeadline)
    }

    /// Where it is meant to be.
    var aim: LifecycleState {
        let (wanted, rests) = contents.withLock { ($0.wanted, $0.rests) }
        let aim = lifecycle.wish.withLock { $0.scene(wanted) }
        return rests && aim == .background ? .suspended : aim
    }

    /// Goes where it is meant to be: after the process on the way up, before it on the way down.
    func settle(_ cause: LifecycleCause, within budget: Duration) async throws -> LifecycleReport {
        let rises = aim > state
        if rises { try await lifecycle.followScenes(cause) }
        let report = try await follow(cause, within: budget)
        if !rises { try? await lifecycle.followScenes(cause) }
        return report
    }

    /// Goes where it is meant to be, the process being where it is.
    func follow(_ cause: LifecycleCause, within budget: Duration) async throws -> LifecycleReport {
        let report = try await unit.engine.request(cause, within: budget) { self.aim }
        if state == .notRunning { lifecycle.forget(self) }
        lifecycle.book(report)
        return report
    }
}

extension Scene: CustomStringConvertible {
    public var description: String { "scene \(id) (\(state))" }
}

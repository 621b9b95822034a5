import CPlimsollProcess
import Synchronization

/// Watches how short memory is and gives it back in the order the application chose.
///
/// Register what can be rebuilt, observe what should be known, and `run()` it for as long as the service runs. A manager
/// that never ran is inert and usable: caches cache, tasks begin and end.
///
/// Start reading at `PressureLoop`, then `PressureResponse`.
public final class ResourceManager: Sendable {
    /// The policy by which this manager decides.
    public var policy: PressurePolicy { parts.policy.withLock { $0 } }

    let parts: ManagerParts
    /// What it decides on; also taken by those who pass announcements on to it.
    package let source: any PressureSource
    private let time: Timekeeper
    private let onTurn: (@Sendable (PressureReading, PressureAssessment) -> Void)?
    private let environment: @Sendable (String) -> String?
    private let hasRun = Atomic<Bool>(false)

    /// A manager that decides by `policy` on what `source` sees.
    ///
    /// - Precondition: the policy's thresholds make sense (`PressureThresholds.problem`).
    public convenience init(source: any PressureSource, policy: PressurePolicy = .standard) {
        self.init(source: source, policy: policy, time: .running)
    }

    package init(
        source: any PressureSource, policy: PressurePolicy = .standard, time: Timekeeper,
        onTurn: (@Sendable (PressureReading, PressureAssessment) -> Void)? = nil,
        exit: @escaping @Sendable (Int32, String) -> Void = { status, line in
            var line = line
            line.withUTF8 { plimsoll_exit(status, UnsafeRawPointer($0.baseAddress!).assumingMemoryBound(to: CChar.self), $0.count) }
        }, environment: @escaping @Sendable (String) -> String? = { SimulationRequest.environment($0) }
    ) {
        if let problem = policy.thresholds.problem { preconditionFailure("PressureThresholds: \(problem)") }
        self.source = source
        self.time = time
        self.onTurn = onTurn
        self.environment = environment
        parts = ManagerParts(source: source, policy: policy, time: time, exit: exit)
    }

    // MARK: Running

    /// Watches and acts until the task is cancelled; then background tasks are expired within `policy.shutdownBudget`.
    ///
    /// An operator has three words in it, by the environment: with `PLIMSOLL_SIMULATE=LEVEL:DURATION`, for example `critical:5s`, it begins with that rehearsal
    /// (`simulate(_:for:)`); `PLIMSOLL_DRY_RUN=true` has it only decide and report, whatever the policy says; and with `PLIMSOLL_ENABLED=false` it neither looks
    /// nor acts, while caches and background tasks work as before it ran.
    ///
    /// - Throws: `ResourceManagerError` if it has run before, no thread can be started, or one of those variables makes no sense.
    public func run() async throws { try await run(isEnabled: true) }

    /// Runs the loop; without looking or acting if `isEnabled` is false and the environment does not say otherwise.
    package func run(isEnabled: Bool) async throws {
        let isEnabled = try ManagerSwitch.enabled.value(environment) ?? isEnabled
        if let isDryRun = try ManagerSwitch.dryRun.value(environment) { self.isDryRun = isDryRun }
        let rehearsal = try environment(SimulationRequest.variable).map { text throws(ResourceManagerError) in try SimulationRequest(text) }
        // Relaxed: one caller wins; nothing else hangs on it.
        guard !hasRun.exchange(true, ordering: .relaxed) else {
            throw ResourceManagerError(description: "this ResourceManager has run already; make another to run again")
        }
        let loop = PressureLoop(source: source, policy: policy, time: time, parts: parts, isEnabled: isEnabled, onTurn: onTurn)
        let parts = parts, source = source
        if let rehearsal { parts.inbox.simulate(rehearsal.level, for: rehearsal.duration) }
        parts.hands.start()
        parts.courier.start()
        parts.threads.run { await parts.lifecycle.launchIfNeeded() }
        let started = await withTaskCancellationHandler {
            await withCheckedContinuation { (ended: CheckedContinuation<Bool, Never>) in
                let started = Thread.start("plimsoll") {
                    loop.run()
                    ended.resume(returning: true)
                }
                if !started { ended.resume(returning: false) }
            }
        } onCancel: {
            parts.inbox.stop()
            source.wake()
        }
        await shutDown()
        if !started {
            throw ResourceManagerError(
                description: "no thread could be started for the pressure loop; is the limit of processes reached (pids.max, RLIMIT_NPROC)?")
        }
    }

    /// Decides by `policy` from now on.
    ///
    /// - Precondition: the manager has not run yet, and the policy's thresholds make sense (`PressureThresholds.problem`).
    package func adopt(_ policy: PressurePolicy) {
        precondition(!hasRun.load(ordering: .relaxed), "the policy of a ResourceManager is set before it runs")
        if let problem = policy.thresholds.problem { preconditionFailure("PressureThresholds: \(problem)") }
        parts.policy.withLock { $0 = policy }
        parts.tasks.setLimits(policy.taskLimits)
        isDryRun = policy.isDryRun
    }

    /// Whether everything is only decided and reported: nothing is released, paused, expired or ended, and observers hear of levels. As the policy says, until it
    /// is set; takes effect at the loop's next turn.
    public var isDryRun: Bool {
        get { parts.isDryRun.load(ordering: .relaxed) }
        set { parts.isDryRun.store(newValue, ordering: .relaxed) }
    }

    /// Which signals are live, and why the others are not. The last three say whether memory can be volatile, whether
    /// the heap can give free pages back, and how secrets are kept.
    public var capabilities: Capabilities {
        let seen = parts.lifecycle.environment.watch.signals.reduce(source.capabilities) { $0.adding($1) }
        return seen.adding(VolatileMemory.signal).adding(HeapAllocator.current.signal).adding(ProcessPrivacy.signal)
    }

    /// What the process is doing, and what it pauses, saves and takes up again on the way.
    public var lifecycle: Lifecycle { parts.lifecycle }

    /// The level in force: one relaxed load, from any thread.
    public var level: PressureLevel { parts.level }

    /// Bytes that may still be taken before memory counts as short, as the last reading saw it; zero at or past that line. `nil` while the manager doesn't run, and
    /// where no limit is known. One relaxed load, from any thread.
    ///
    /// For whoever takes memory that no cache holds, such as buffers for a body. It is everybody's: take a share of it.
    public var room: Int? { parts.room.room?.bytes }

    /// Pretends `level` for `duration`: everything on the path is done for real and labelled, but no process is ended.
    /// `.normal` ends a rehearsal at once. Does nothing unless the manager runs.
    public func simulate(_ level: PressureLevel, for duration: Duration) {
        parts.inbox.simulate(level, for: duration)
        source.wake()
    }

    // MARK: Observing

    /// Calls `body` with each announced level of `threshold` or more, on the manager's delivery thread, one at a time.
    ///
    /// `from: .normal` also hears of recovery. Each level is announced at most once in the policy's resting time. A body that
    /// takes longer than the policy's budget is named in a report; the other observers are served meanwhile, and it hears the newest of
    /// what it missed when it returns.
    @discardableResult
    public func observe(
        from threshold: PressureLevel = .warning, _ name: String = "observer", _ body: @escaping @Sendable (PressureEvent) -> Void
    ) -> Registration {
        let observer = ObserverRegistry.Observer(name, threshold, body)
        let observers = parts.observers
        observers.add(observer)
        return Registration(observer.gate) { observers.remove(observer) }
    }

    /// Every announced change of level, recovery included; a slow reader gets the newest.
    public var pressureEvents: AsyncStream<PressureEvent> {
        AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
            let registration = observe(from: .normal, "pressureEvents") { continuation.yield($0) }
            continuation.onTermination = { _ in registration.cancel() }
        }
    }

    /// What was done lately, oldest first; at most 256.
    public var reports: [ActionReport] { parts.journal.reports }

    /// Calls `body` with each report to come, in order, on the manager's delivery thread.
    public func onReport(_ body: @escaping @Sendable (ActionReport) -> Void) { parts.journal.listen(body) }

    // MARK: Registering

    /// Makes `purgeable` give way under pressure. It is kept until the registration is cancelled.
    ///
    /// A cache that declares what it takes is bounded by the first manager it is registered with for as long as that one runs; cancelling ends
    /// the releases, not that bound.
    ///
    /// - Parameters:
    ///   - purgeable: what holds memory and can let go of it.
    ///   - purgesOnBackground: whether it lets go of everything on the way to the background: for what is kept for speed only (C87).
    ///   - tags: names under which `release(_:from:)` selects it.
    @discardableResult
    public func register(_ purgeable: any Purgeable, purgesOnBackground: Bool = false, tags: [String] = []) -> Registration {
        parts.registrar(purgeable, PurgeablePlace(tags: tags, purgesOnBackground: purgesOnBackground))
    }

    func register(_ purgeable: any Purgeable, _ place: PurgeablePlace) -> Registration { parts.registrar(purgeable, place) }

    /// Makes anything else give way: a closure that tells how much it holds, and one that lets go of at least so much.
    ///
    /// - Parameters:
    ///   - name: what reports call it.
    ///   - rebuildCost: what it costs to make its contents again.
    ///   - purgesOnBackground: whether it lets go of everything on the way to the background. So registered, a pool of idle connections or buffers is emptied
    ///     there while whoever has the pool goes on having it (C88).
    ///   - byteCount: bytes held now. Called when memory is short; may be called from any thread.
    ///   - release: gets the bytes to let go of, returns the bytes it let go of.
    @discardableResult
    public func register(
        _ name: String, rebuildCost: RebuildCost = .cheap, purgesOnBackground: Bool = false, byteCount: @escaping @Sendable () -> Int,
        release: @escaping @Sendable (Int) -> Int
    ) -> Registration {
        let purgeable = ClosurePurgeable(name, rebuildCost: rebuildCost, held: byteCount, release: release)
        return register(purgeable, purgesOnBackground: purgesOnBackground)
    }

    /// Runs `save` before the process ends itself (`PressurePolicy.terminate`), beside the others, on a thread of its own.
    ///
    /// - Parameters:
    ///   - name: what the last line of the process calls it.
    ///   - save: gets the time it has. If it throws, that line says so.
    public func beforeTermination(_ name: String, _ save: @escaping @Sendable (_ timeLeft: Duration) throws -> Void) {
        parts.saves.add(name, save)
    }
}

/// A manager that cannot run.
public struct ResourceManagerError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What was asked, and why not.
    public var description: String
}

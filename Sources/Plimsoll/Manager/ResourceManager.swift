import CPlimsollProcess
import Synchronization

/// Watches memory pressure and releases memory in the order that the application chose.
///
/// Register rebuildable objects, observe level changes, and call `run()` for the lifetime of the service. A manager
/// that never ran is inert and usable: caches store values, background tasks begin and end.
///
/// Start reading at `PressureLoop`, then `PressureResponse`.
public final class ResourceManager: Sendable {
    /// The policy that this manager applies.
    public var policy: PressurePolicy { parts.policy.withLock { $0 } }

    package let parts: ManagerParts
    /// The source of readings. Code that forwards announcements to the source also uses this property.
    package let source: any PressureSource
    private let time: Timekeeper
    private let onTurn: (@Sendable (PressureReading, PressureAssessment) -> Void)?
    private let environment: @Sendable (String) -> String?
    private let hasRun = Atomic<Bool>(false)

    /// Creates a manager that applies `policy` to the readings of `source`.
    ///
    /// - Precondition: the policy's thresholds are consistent (`PressureThresholds.problem`).
    public convenience init(source: any PressureSource, policy: PressurePolicy = .standard) {
        self.init(source: source, policy: policy, time: .running)
    }

    package init(
        source: any PressureSource, policy: PressurePolicy = .standard, time: Timekeeper,
        requests: BudgetRegistry = .process,
        onTurn: (@Sendable (PressureReading, PressureAssessment) -> Void)? = nil,
        exit: @escaping @Sendable (Int32, String) -> Void = { status, line in
            var line = line
            line.withUTF8 {
                plimsoll_exit(status, UnsafeRawPointer($0.baseAddress!).assumingMemoryBound(to: CChar.self), $0.count)
            }
        }, environment: @escaping @Sendable (String) -> String? = { SimulationRequest.environment($0) }
    ) {
        if let problem = policy.thresholds.problem { preconditionFailure("PressureThresholds: \(problem)") }
        self.source = source
        self.time = time
        self.onTurn = onTurn
        self.environment = environment
        parts = ManagerParts(source: source, policy: policy, time: time, requests: requests, exit: exit)
    }

    // MARK: Running

    /// Watches and acts until the task is cancelled. Then expires background tasks within `policy.shutdownBudget`.
    ///
    /// An operator can set three environment variables. `PLIMSOLL_SIMULATE=LEVEL:DURATION`, for example
    /// `critical:5s`, starts with that simulation (`simulate(_:for:)`). `PLIMSOLL_DRY_RUN=true` makes the manager
    /// only decide and report, regardless of the policy. `PLIMSOLL_ENABLED=false` disables reading and acting;
    /// caches and background tasks work as before `run()`.
    ///
    /// - Throws: `ResourceManagerError` if the manager has run before, no thread can be started, or one of those
    ///   variables is invalid.
    public func run() async throws { try await run(isEnabled: true) }

    /// Runs the loop. With `isEnabled` false, the loop neither reads nor acts, unless the environment overrides
    /// `isEnabled`.
    package func run(isEnabled: Bool) async throws {
        let isEnabled = try ManagerSwitch.enabled.value(environment) ?? isEnabled
        if let isDryRun = try ManagerSwitch.dryRun.value(environment) { self.isDryRun = isDryRun }
        let rehearsal = try environment(SimulationRequest.variable).map { text throws(ResourceManagerError) in
            try SimulationRequest(text)
        }
        // Relaxed: one caller wins the exchange; no other memory access depends on this flag.
        guard !hasRun.exchange(true, ordering: .relaxed) else {
            throw ResourceManagerError(
                description: "cannot run this ResourceManager because it has run already; make another one")
        }
        let loop = PressureLoop(
            source: source, policy: policy, time: time, parts: parts, isEnabled: isEnabled, onTurn: onTurn)
        let parts = parts, source = source
        if let rehearsal { parts.inbox.simulate(rehearsal.level, for: rehearsal.duration) }
        parts.purgeWorker.start()
        parts.deliveryWorker.start()
        let joined = parts.joined.beginRun()
        parts.threads.run { for part in joined { await part.prepare() } }
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
        // Also lets go of what the recorder holds, such as the lock on a file.
        parts.recorder.withLock { exchange(&$0, nil) }?.ended(.shutdown)
        if !started {
            throw ResourceManagerError(
                description:
                    "cannot start a thread for the pressure loop; check the limit of processes (pids.max, RLIMIT_NPROC)"
            )
        }
    }

    /// Applies `policy` from now on.
    ///
    /// - Precondition: the manager has not run yet, and the policy's thresholds are consistent
    ///   (`PressureThresholds.problem`).
    package func adopt(_ policy: PressurePolicy) {
        precondition(
            !hasRun.load(ordering: .relaxed),
            "cannot set the policy because the ResourceManager has run; set the policy before run()")
        if let problem = policy.thresholds.problem { preconditionFailure("PressureThresholds: \(problem)") }
        let former = parts.policy.withLock { exchange(&$0, policy) }
        parts.tasks.setLimits(policy.taskLimits)
        if policy.isDryRun != former.isDryRun { isDryRun = policy.isDryRun }
    }

    /// True if actions are only decided and reported. No memory is released; no work is paused, expired or ended;
    /// observers still receive levels. The initial value is that of the policy. A change takes effect at the loop's
    /// next turn.
    public var isDryRun: Bool {
        get { parts.isDryRun.load(ordering: .relaxed) }
        set { parts.isDryRun.store(newValue, ordering: .relaxed) }
    }

    /// The live signals, and the reason for each signal that is not live: those of the source, then three of the
    /// manager (volatile memory, the allocator, the count of requests' memory), then those of joined parts.
    public var capabilities: Capabilities {
        let own = source.capabilities.adding(VolatileMemory.signal).adding(HeapAllocator.current.signal)
            .adding(BudgetRegistry.signal)
        return parts.joined.all.flatMap(\.signals).reduce(own) { $0.adding($1) }
    }

    /// The level in force. One relaxed load, from any thread.
    public var level: PressureLevel { parts.level }

    /// Headroom in bytes before memory counts as short, by the last reading; zero at or past that line. `nil` while
    /// the manager does not run, and if no limit is known. One relaxed load, from any thread.
    ///
    /// For code that takes memory outside any cache, such as buffers for a body. All parts of the process share the
    /// headroom: take only a share.
    public var room: Int? { parts.room.room?.bytes }

    /// Simulates `level` for `duration`. All actions are real and labelled as simulated, but no process is suspended
    /// or ended. The time of a simulation does not count as patience of a rung in a shortage that follows.
    /// `.normal` ends a simulation at once. Has no effect unless the manager runs.
    public func simulate(_ level: PressureLevel, for duration: Duration) {
        parts.inbox.simulate(level, for: duration)
        source.wake()
    }

    // MARK: Observing

    /// Calls `body` with each announced level of `threshold` or more, on the manager's delivery thread, one at a
    /// time.
    ///
    /// `from: .normal` also receives recovery. Each level is announced at most once within the policy's resting
    /// time. A body that exceeds the policy's budget is named in a report. The other observers are served
    /// meanwhile. When the slow body returns, its observer receives the newest missed event.
    @discardableResult
    public func observe(
        from threshold: PressureLevel = .warning, _ name: String = "observer",
        _ body: @escaping @Sendable (PressureEvent) -> Void
    ) -> Registration {
        parts.observers.observe(threshold, name, body)
    }

    /// A stream of all announced changes of level, recovery included. A slow reader receives only the newest event.
    public var pressureEvents: AsyncStream<PressureEvent> {
        AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
            let registration = observe(from: .normal, "pressureEvents") { continuation.yield($0) }
            continuation.onTermination = { _ in registration.cancel() }
        }
    }

    /// The recent reports, oldest first; at most 256.
    public var reports: [ActionReport] { parts.journal.reports }

    /// Calls `body` with each future report, in order, on the manager's delivery thread, one at a time. A body that
    /// exceeds the policy's budget is named in a report, and misses the reports that come before that call returns.
    public func onReport(_ body: @escaping @Sendable (ActionReport) -> Void) { parts.journal.listen(body) }

    // MARK: Registering

    /// Registers `purgeable` for release under pressure. The manager retains `purgeable` until the registration is
    /// cancelled.
    ///
    /// A cache that declares its memory is bounded by the first manager it is registered with, while that manager
    /// runs. Cancelling ends the releases, but not that bound. A restriction (`Purgeable.restrict(to:)`) ends with the
    /// registration, and with `run()`.
    ///
    /// - Parameters:
    ///   - purgeable: object that holds memory and can release memory.
    ///   - purgesOnBackground: true to release everything on the way to the background; for contents kept only for
    ///     speed (C87).
    ///   - tags: names under which `release(_:from:)` selects the object.
    @discardableResult
    public func register(_ purgeable: any Purgeable, purgesOnBackground: Bool = false, tags: [String] = [])
        -> Registration
    {
        parts.registrar(purgeable, PurgeablePlace(tags: tags, purgesOnBackground: purgesOnBackground))
    }

    func register(_ purgeable: any Purgeable, _ place: PurgeablePlace) -> Registration {
        parts.registrar(purgeable, place)
    }

    /// Registers two closures for release under pressure: one returns the held bytes, the other releases at least
    /// the given bytes.
    ///
    /// - Parameters:
    ///   - name: name in reports.
    ///   - rebuildCost: cost to rebuild the contents.
    ///   - purgesOnBackground: true to release everything on the way to the background. A pool of idle connections
    ///     or buffers registered this way is emptied there, and references to the pool stay valid (C88).
    ///   - byteCount: returns the bytes held now. Called when memory is short, from any thread.
    ///   - release: takes the bytes to release, returns the released bytes.
    @discardableResult
    public func register(
        _ name: String, rebuildCost: RebuildCost = .cheap, purgesOnBackground: Bool = false,
        byteCount: @escaping @Sendable () -> Int,
        release: @escaping @Sendable (Int) -> Int
    ) -> Registration {
        let purgeable = ClosurePurgeable(name, rebuildCost: rebuildCost, held: byteCount, release: release)
        return register(purgeable, purgesOnBackground: purgesOnBackground)
    }

    /// Registers `save` to run before the process ends itself (a rung `terminate` of the ladder), in parallel with
    /// other saves, on a thread of its own. An ordinary shutdown does not call `save`.
    ///
    /// - Parameters:
    ///   - name: name in the last line of the process.
    ///   - save: receives the time available. The last line reports a thrown error.
    public func beforeTermination(_ name: String, _ save: @escaping @Sendable (_ timeLeft: Duration) throws -> Void) {
        parts.saves.add(name, save)
    }
}

/// An error that prevents a manager from running.
public struct ResourceManagerError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The request that failed, and the reason.
    public var description: String
}

/// Functions for a product that runs a manager as a service.
extension ResourceManager {
    /// True if the loop completed a turn lately. A disabled loop counts as alive, and so does one that was stopped: the
    /// shutdown has a deadline of its own.
    package var isAlive: Bool {
        guard !parts.inbox.isStopped, let seen = parts.lastTurn.withLock({ $0?.reading.at }) else { return true }
        // Running time excludes a freeze. The loop reads at the latest after `Pace.longest`.
        return parts.time.elapsed() - seen < Pace.longest * 3 + .seconds(10)
    }

    /// Calls `body`, which may block, after the loop's first turn. Calls `body` also if the loop has ended or is
    /// disabled, but not if the thread of the loop cannot be started: the process never becomes ready then, and `run()`
    /// throws an error.
    package func whenFirstTurnIsOver(_ body: @escaping @Sendable () -> Void) {
        parts.firstTurn.whenOver { [threads = parts.threads] in threads.run(body) }
    }

    /// Ends `run()`, as cancelling its task does.
    package func stop() {
        parts.inbox.stop()
        source.wake()
    }
}

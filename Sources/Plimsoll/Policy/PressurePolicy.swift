/// What an application lets pressure do to it.
public struct PressurePolicy: Sendable, Hashable {
    /// What is done in which order.
    public var ladder: EscalationLadder
    /// What counts as pressure.
    public var thresholds: PressureThresholds
    /// Decide, report and tell observers, but release, expire and end nothing.
    public var isDryRun: Bool
    /// Whether the process may end itself.
    public var terminate: Termination
    /// How long a handler (observer, release, save) may take before it is named in a report and gone around.
    public var handlerBudget: Duration
    /// How long background tasks have when the manager is shut down.
    public var shutdownBudget: Duration
    /// How long the steps of the life cycle may take.
    public var lifecycle: LifecyclePolicy
    /// How long the process, and each scene, may go on in the background before its background tasks are asked to stop. By running time:
    /// a freeze does not eat it.
    public var backgroundAllowance: Duration
    /// How long background tasks have once that is spent.
    public var expirationGrace: Duration
    /// More background tasks than this at once are refused: so many are a leak, not work.
    public var mostBackgroundTasks: Int

    /// A policy; the defaults are `standard`'s.
    public init(
        ladder: EscalationLadder = .standard, thresholds: PressureThresholds = .standard, isDryRun: Bool = false,
        terminate: Termination = .never, handlerBudget: Duration = .seconds(5), shutdownBudget: Duration = .seconds(5),
        lifecycle: LifecyclePolicy = .standard,
        backgroundAllowance: Duration = .seconds(30), expirationGrace: Duration = .seconds(5), mostBackgroundTasks: Int = 1 << 20
    ) {
        self.ladder = ladder
        self.thresholds = thresholds
        self.isDryRun = isDryRun
        self.terminate = terminate
        self.handlerBudget = handlerBudget
        self.shutdownBudget = shutdownBudget
        self.lifecycle = lifecycle
        self.backgroundAllowance = backgroundAllowance
        self.expirationGrace = expirationGrace
        self.mostBackgroundTasks = mostBackgroundTasks
    }

    /// The standard ladder and thresholds; never ends the process.
    public static let standard = PressurePolicy()

    /// Whether and when a process ends itself so that the kernel need not.
    public enum Termination: Sendable, Hashable {
        /// The kernel decides.
        case never
        /// After readings were critical this long without a break and purging proved useless: save within `grace`, then exit with status 75.
        case afterContinuousSaturation(Duration, grace: Duration = .seconds(10))
    }

    var taskLimits: BackgroundTaskRegistry.Limits {
        .init(allowance: backgroundAllowance, grace: expirationGrace, capacity: mostBackgroundTasks)
    }

    /// `ladder` with the rung that ends the process as `terminate` says: at its time, or not at all.
    package var effectiveLadder: EscalationLadder {
        var rungs = ladder.rungs.filter { if case .terminate = $0.action { false } else { true } }
        if case .afterContinuousSaturation(let patience, let grace) = terminate {
            rungs.append(Rung(at: .critical, after: patience, .terminate(grace: grace)))
        }
        return EscalationLadder(trusted: rungs)
    }
}

/// What an application lets pressure do to it.
public struct PressurePolicy: Sendable, Hashable {
    /// What is done in which order; whether the process may end itself as well: it does at a rung `PressureAction.terminate`, and without one never.
    public var ladder: EscalationLadder
    /// What counts as pressure.
    public var thresholds: PressureThresholds
    /// Decide, report and tell observers, but release, expire and end nothing.
    public var isDryRun: Bool
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
    ///
    /// - Parameters:
    ///   - ladder: what is done in which order.
    ///   - thresholds: what counts as pressure.
    ///   - isDryRun: whether everything is only decided and reported.
    ///   - terminate: if not `nil`, takes the place of what `ladder` says about the end of the process, as setting `terminate` does.
    ///   - handlerBudget: how long a handler may take.
    ///   - shutdownBudget: how long background tasks have at the end.
    ///   - lifecycle: how long the steps of the life cycle may take.
    ///   - backgroundAllowance: time in the background.
    ///   - expirationGrace: how long background tasks have once that is spent.
    ///   - mostBackgroundTasks: how many there may be at once.
    public init(
        ladder: EscalationLadder = .standard, thresholds: PressureThresholds = .standard, isDryRun: Bool = false,
        terminate: Termination? = nil, handlerBudget: Duration = .seconds(5), shutdownBudget: Duration = .seconds(5),
        lifecycle: LifecyclePolicy = .standard,
        backgroundAllowance: Duration = .seconds(30), expirationGrace: Duration = .seconds(5), mostBackgroundTasks: Int = 1 << 20
    ) {
        self.ladder = ladder
        self.thresholds = thresholds
        self.isDryRun = isDryRun
        self.handlerBudget = handlerBudget
        self.shutdownBudget = shutdownBudget
        self.lifecycle = lifecycle
        self.backgroundAllowance = backgroundAllowance
        self.expirationGrace = expirationGrace
        self.mostBackgroundTasks = mostBackgroundTasks
        if let terminate { self.terminate = terminate }
    }

    /// Whether and when the process ends itself: the ladder's rung `PressureAction.terminate`, the first if there are several. Setting it changes the ladder
    /// (`EscalationLadder.terminating(after:grace:)`), and setting the ladder changes it.
    public var terminate: Termination {
        get {
            for rung in ladder.rungs {
                if let grace = rung.action.endingGrace { return .afterContinuousSaturation(rung.patience, grace: grace) }
            }
            return .never
        }
        set {
            switch newValue {
            case .never: ladder = ladder.unending
            case .afterContinuousSaturation(let patience, let grace): ladder = ladder.terminating(after: patience, grace: grace)
            }
        }
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
}

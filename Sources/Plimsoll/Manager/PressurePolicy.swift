/// An application's response to memory pressure.
public struct PressurePolicy: Sendable, Hashable {
    /// The actions in order. The process ends itself only at a rung `PressureAction.terminate`
    /// (`EscalationLadder.terminating(after:grace:)`); without such a rung, never.
    public var ladder: EscalationLadder
    /// Thresholds of the pressure levels.
    public var thresholds: PressureThresholds
    /// True to decide, report and notify observers, but release, expire and end nothing.
    public var isDryRun: Bool
    /// Time that a handler (observer, release, save) may take before a report names the handler and the manager goes on
    /// without waiting.
    public var handlerBudget: Duration
    /// Time for background tasks when the manager is shut down.
    public var shutdownBudget: Duration
    /// Time that the process, and each scene, may run in the background before the background tasks are asked to stop.
    /// Counted in running time, without freezes.
    public var backgroundAllowance: Duration
    /// Time for background tasks once that allowance is spent.
    public var expirationGrace: Duration
    /// Maximum number of background tasks at once; more are refused. So many are a leak, not work.
    public var mostBackgroundTasks: Int
    /// Division of memory among the caches of the process.
    public var division: CacheDivision

    /// A way to divide memory among the caches of a process that have no limit of their own.
    public struct CacheDivision: Sendable, Hashable {
        /// Each cache gives back in proportion to the bytes that it holds, the cheapest to rebuild first.
        public static let proportional = CacheDivision(isByWorth: false)
        /// Each byte goes where it saves most load time. Each cache learns from a sample of its requests how many misses
        /// more memory would save (`CurveMeter`); a miss costs as much as loads have taken. Caches on the heap divide the
        /// memory for caches, and volatile caches the memory that would otherwise be idle. The default.
        public static let byWorth = CacheDivision(isByWorth: true)

        let isByWorth: Bool
    }

    /// Creates a policy; the defaults are those of `standard`.
    ///
    /// - Parameters:
    ///   - ladder: the actions in order.
    ///   - thresholds: thresholds of the pressure levels.
    ///   - isDryRun: true to decide and report only.
    ///   - handlerBudget: time limit of a handler.
    ///   - shutdownBudget: time for background tasks at the end.
    ///   - backgroundAllowance: time in the background.
    ///   - expirationGrace: time for background tasks once the allowance is spent.
    ///   - mostBackgroundTasks: maximum number of background tasks at once.
    ///   - division: division of memory among caches.
    public init(
        ladder: EscalationLadder = .standard, thresholds: PressureThresholds = .standard, isDryRun: Bool = false,
        handlerBudget: Duration = .seconds(5), shutdownBudget: Duration = .seconds(5),
        backgroundAllowance: Duration = .seconds(30), expirationGrace: Duration = .seconds(5),
        mostBackgroundTasks: Int = 1 << 20, division: CacheDivision = .byWorth
    ) {
        self.ladder = ladder
        self.thresholds = thresholds
        self.isDryRun = isDryRun
        self.handlerBudget = handlerBudget
        self.shutdownBudget = shutdownBudget
        self.backgroundAllowance = backgroundAllowance
        self.expirationGrace = expirationGrace
        self.mostBackgroundTasks = mostBackgroundTasks
        self.division = division
    }

    /// The standard ladder and thresholds. Never ends the process.
    public static let standard = PressurePolicy()

    var taskLimits: BackgroundTaskRegistry.Limits {
        .init(allowance: backgroundAllowance, grace: expirationGrace, capacity: mostBackgroundTasks)
    }
}

/// Assessor and ladder in one, for replaying readings: the decisions that a manager would have made.
package struct PressureDecisions: Sendable {
    private var assessor: PressureAssessor
    private var climb: LadderClimb
    private var announcer: Announcer

    /// Creates decisions by `policy`, without history.
    package init(policy: PressurePolicy = .standard) {
        assessor = PressureAssessor(thresholds: policy.thresholds)
        climb = LadderClimb(policy.ladder)
        announcer = Announcer(rest: policy.thresholds.announcementRest)
    }

    /// Judges `reading` and returns the actions. `release` appears only when there are bytes to release.
    package mutating func decide(_ reading: PressureReading) -> Step {
        let assessment = assessor.assess(reading)
        let actions = climb.climb(assessment).filter { $0 != .release || assessment.shortfall > .zero }
        return Step(reading: reading, assessment: assessment, actions: actions, event: announcer.event(for: assessment))
    }

    /// One reading, the judgement and the consequences.
    package struct Step: Sendable, Hashable {
        package var reading: PressureReading
        /// The judgement of the reading.
        package var assessment: PressureAssessment
        package var actions: [PressureAction]
        /// The event for observers; `nil` for none.
        package var event: PressureEvent?
    }
}

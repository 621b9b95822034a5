/// Assessor and ladder in one, for replaying readings: the decisions that a manager would have made.
public struct PressureDecisions: Sendable {
    private var assessor: PressureAssessor
    private var climb: LadderClimb
    private var announcer: Announcer

    /// Creates decisions by `policy`, without history.
    public init(policy: PressurePolicy = .standard) {
        assessor = PressureAssessor(thresholds: policy.thresholds)
        climb = LadderClimb(policy.ladder)
        announcer = Announcer(rest: policy.thresholds.announcementRest)
    }

    /// Judges `reading` and returns the actions. `release` appears only when there are bytes to release.
    public mutating func decide(_ reading: PressureReading) -> Step {
        let assessment = assessor.assess(reading)
        let actions = climb.climb(assessment).filter { $0 != .release || assessment.shortfall > .zero }
        return Step(reading: reading, assessment: assessment, actions: actions, event: announcer.event(for: assessment))
    }

    /// One reading, the judgement and the consequences.
    public struct Step: Sendable, Hashable {
        /// The reading.
        public var reading: PressureReading
        /// The judgement of the reading.
        public var assessment: PressureAssessment
        /// The actions to perform.
        public var actions: [PressureAction]
        /// The event for observers; `nil` for none.
        public var event: PressureEvent?
    }
}

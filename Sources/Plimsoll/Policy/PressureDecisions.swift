/// Assessor and ladder in one, for replaying readings: what a manager would have decided.
public struct PressureDecisions: Sendable {
    private var assessor: PressureAssessor
    private var climb: LadderClimb
    private var announcer: Announcer

    /// Decisions by `policy`, with no history.
    public init(policy: PressurePolicy = .standard) {
        assessor = PressureAssessor(thresholds: policy.thresholds)
        climb = LadderClimb(policy.ladder)
        announcer = Announcer(rest: policy.thresholds.announcementRest)
    }

    /// What `reading` means and what is to be done about it. `release` appears only when there are bytes to release.
    public mutating func decide(_ reading: PressureReading) -> Step {
        let assessment = assessor.assess(reading)
        let actions = climb.climb(assessment).filter { $0 != .release || assessment.shortfall > .zero }
        return Step(reading: reading, assessment: assessment, actions: actions, event: announcer.event(for: assessment))
    }

    /// One reading and what followed from it.
    public struct Step: Sendable, Hashable {
        /// What was seen.
        public var reading: PressureReading
        /// What it means.
        public var assessment: PressureAssessment
        /// What is to be done.
        public var actions: [PressureAction]
        /// What observers hear; `nil` for nothing.
        public var event: PressureEvent?
    }
}

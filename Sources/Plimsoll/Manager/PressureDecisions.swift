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
        /// The reading.
        package var reading: PressureReading
        /// The judgement of the reading.
        package var assessment: PressureAssessment
        /// The actions to perform.
        package var actions: [PressureAction]
        /// The event for observers; `nil` for none.
        package var event: PressureEvent?
    }
}

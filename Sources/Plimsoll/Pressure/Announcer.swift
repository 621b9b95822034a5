/// Decides which changes of level observers are notified of, and numbers them.
struct Announcer: Sendable {
    /// The level last announced.
    private(set) var announced = PressureLevel.normal
    /// The number of the last event; reports carry it.
    private(set) var lastID: UInt64 = 0
    /// The level withheld from observers because of a recent announcement.
    private(set) var withheld: PressureLevel?
    private var warnedAt: Duration?
    private var criticalAt: Duration?
    private let rest: Duration

    init(rest: Duration) { self.rest = rest }

    /// Returns the event to announce for `assessment`; `nil` if nothing changed or the level was announced within the
    /// resting time.
    mutating func event(for assessment: PressureAssessment) -> PressureEvent? {
        let level = assessment.level
        guard level != announced else {
            withheld = nil
            return nil
        }
        let before = level == .critical ? criticalAt : level == .warning ? warnedAt : nil
        // A simulation is requested, so its level is always announced.
        if let before, assessment.at - before < rest, !assessment.evidence.contains(.simulated) {
            withheld = level
            return nil
        }
        withheld = nil
        if level == .critical { criticalAt = assessment.at }
        if level == .warning { warnedAt = assessment.at }
        lastID += 1
        defer { announced = level }
        return PressureEvent(
            id: lastID, level: level, previous: announced, shortfall: assessment.shortfall.bytes,
            timeLeft: assessment.timeLeft,
            evidence: assessment.evidence)
    }
}

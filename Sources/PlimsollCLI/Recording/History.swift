import Plimsoll
import PlimsollDemos
import PlimsollLifecycle
import PlimsollTesting

/// Decisions over time, as a drawing and as a table.
struct History {
    private let steps: [PressureDecisions.Step]
    private let start: Duration

    init(_ outcome: Simulation.Outcome) {
        steps = outcome.steps
        start = outcome.steps.first?.reading.at ?? .zero
    }

    /// Limit of columns. An idle recording may span a night, and a terminal can scroll through only so many columns.
    static let mostColumns = 3600

    /// Levels and actions, a character a second: the worst of each second. A second without a reading shows the level
    /// still in force.
    var drawing: (levels: String, actions: String) {
        var levels: [PressureLevel] = [], actions: [PressureAction?] = []
        var inForce = PressureLevel.normal
        for step in steps {
            let second = min(Self.mostColumns - 1, max(0, Int((step.reading.at - start).inSeconds)))
            while levels.count < second {
                levels.append(inForce)
                actions.append(nil)
            }
            inForce = step.assessment.level
            if levels.count == second {
                levels.append(inForce)
                actions.append(nil)
            }
            levels[second] = max(levels[second], inForce)
            actions[second] = ([actions[second]].compactMap(\.self) + step.actions).max { $0.severity < $1.severity }
        }
        return (levels.map(\.drawn).joined(), actions.map { $0?.drawn ?? "." }.joined())
    }

    /// One row for each change of level and for each action; consecutive releases are one row.
    var changes: [Change] {
        var changes: [Change] = []
        var level = PressureLevel.normal
        var wasReleasing = false
        for step in steps {
            var actions = step.actions
            let isReleasing = actions.contains(.release)
            if wasReleasing { actions.removeAll { $0 == .release } }
            wasReleasing = isReleasing
            if step.assessment.level != level || !actions.isEmpty {
                changes.append(
                    Change(
                        at: step.reading.at - start, assessment: step.assessment, reading: step.reading,
                        actions: actions))
            }
            level = step.assessment.level
        }
        return changes
    }

    struct Change {
        var at: Duration
        var assessment: PressureAssessment
        var reading: PressureReading
        var actions: [PressureAction]

        /// Cells of a row: `time level used headroom why then`.
        var cells: [String] {
            let used = reading.limit.map { "\(reading.usage) of \($0)" } ?? "\(reading.usage)"
            return [
                Text.number(at.inSeconds, decimals: 3) + " s", assessment.level.description, used,
                reading.available?.description ?? "unknown",
                assessment.evidence.isEmpty ? "calm" : assessment.evidence.description,
                actions.isEmpty ? "-" : actions.map(\.description).joined(separator: ", "),
            ]
        }

        var record: Record {
            Record(
                atMicroseconds: Int(at.inNanoseconds / 1000), level: assessment.level.description,
                evidence: assessment.evidence.description,
                usageBytes: reading.usage.bytes, limitBytes: reading.limit?.bytes,
                availableBytes: reading.available?.bytes,
                shortfallBytes: assessment.shortfall.bytes, actions: actions.map(\.description))
        }

        struct Record: Encodable {
            var atMicroseconds: Int, level: String, evidence: String, usageBytes: Int, limitBytes: Int?,
                availableBytes: Int?
            var shortfallBytes: Int, actions: [String]
        }
    }

    var table: String { Text.table(["time", "level", "used", "headroom", "why", "then"], changes.map(\.cells)) }
}

import Plimsoll
import PlimsollDemos
import PlimsollLifecycle

/// The output of `watch`: a frame redrawn in place, or a line where there is no terminal.
struct WatchView {
    private var recent: [String] = []
    private var drawnLines = 0
    private var level = PressureLevel.normal
    private var wasReleasing = false

    private static let width = 50
    private static let remembered = 5

    /// Records the actions that would have been taken, newest last.
    mutating func note(_ step: PressureDecisions.Step) {
        let time = Text.right(Text.number(step.reading.at.inSeconds), 6) + " s  "
        if step.assessment.level != level {
            recent.append(
                time + "\(level) -> \(step.assessment.level)"
                    + (step.assessment.evidence.isEmpty ? "" : " (\(step.assessment.evidence))"))
            level = step.assessment.level
        }
        let isReleasing = step.actions.contains(.release)
        for action in step.actions where action != .release || !wasReleasing {
            recent.append(time + "would \(action)" + (action == .release ? " \(step.assessment.shortfall)" : ""))
        }
        wasReleasing = isReleasing
        recent = recent.suffix(Self.remembered)
    }

    /// Returns one self-contained line.
    func line(_ step: PressureDecisions.Step) -> String {
        Text.right(Text.number(step.reading.at.inSeconds), 6) + " s  "
            + rows(step).map { "\($0.0) \($0.1)" }.joined(separator: "  ")
    }

    /// Returns the frame, preceded by the escape sequence that moves the cursor back to the start of the previous
    /// frame.
    mutating func frame(_ step: PressureDecisions.Step) -> String {
        var lines = rows(step).map { "\(Text.left($0.0, 9))  \($0.1)" }
        lines.insert("           " + bar(step.reading), at: 1)
        lines += [""] + (recent.isEmpty ? ["no action needed"] : recent)
        // Constant height: a frame that grows would scroll the previous one.
        while lines.count < Self.height { lines.append("") }
        let back = drawnLines > 0 ? "\u{1B}[\(drawnLines)A" : ""
        drawnLines = lines.count
        return back + lines.map { "\u{1B}[2K\($0)\n" }.joined()
    }

    private static let height = 14

    private func bar(_ reading: PressureReading) -> String {
        guard let limit = reading.limit, limit > .zero else { return "" }
        let thresholds = PressureThresholds.standard
        func line(_ margin: PressureThresholds.Margin) -> Double {
            1 - Double(margin.below(limit).bytes) / Double(limit.bytes)
        }
        let marks: [(Double, Character)] = [
            (line(thresholds.warningMargin), "w"), (line(thresholds.criticalMargin), "c"),
        ]
        return "["
            + Bar.draw(
                Double((reading.pinned ?? reading.usage).bytes) / Double(limit.bytes), width: Self.width, marks: marks)
            + "]"
    }

    private func rows(_ step: PressureDecisions.Step) -> [(String, String)] {
        let reading = step.reading, assessment = step.assessment
        var rows = [
            ("level", assessment.level.description + (assessment.evidence.isEmpty ? "" : " (\(assessment.evidence))"))
        ]
        rows.append(
            (
                "usage",
                "\(reading.usage)"
                    + (reading.limit.map { " of \($0) (\(reading.boundary.rawValue))" } ?? ", no limit known")
            ))
        rows.append(("headroom", reading.available?.description ?? "unknown"))
        rows.append(("growth", AdminText.growth(assessment.growth, assessment.timeLeft?.inSeconds)))
        rows.append(
            ("stalled", reading.stall == nil ? "unknown" : Text.number(assessment.stallShare * 100) + " % of 10 s"))
        rows.append(("shortfall", assessment.shortfall.description))
        return rows
    }
}

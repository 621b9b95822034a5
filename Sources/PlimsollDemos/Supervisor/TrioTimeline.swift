import Plimsoll
import PlimsollSupervisor

/// An event of the play.
enum TrioEvent {
    /// A decision or action of the supervisor; times since the start.
    case audit(AuditRecord)
    /// The group's memory has passed the line of a level, or has fallen below the line.
    case line(PressureLevel, ByteCount)
    case ended(String, TrioRecord.Ending)
}

extension TrioRecord {
    /// Returns the level whose line lies below `usage`: the standard margins below the limit.
    static func line(passedBy usage: ByteCount, limit: ByteCount) -> PressureLevel {
        PressureLevel.allCases.last { usage > line(of: $0, limit: limit) } ?? .normal
    }

    /// Returns the usage at which a level begins by the margin alone, for any growth; zero for `normal`.
    static func line(of level: PressureLevel, limit: ByteCount) -> ByteCount {
        let thresholds = PressureThresholds.standard
        switch level {
        case .normal: return .zero
        case .warning: return limit - thresholds.warningMargin.below(limit)
        case .critical: return limit - thresholds.criticalMargin.below(limit)
        }
    }
}

/// Prints a play as it happens, with lines for each event: seconds since the services' start, the level, the event.
struct TrioTimeline {
    let isSupervised: Bool
    private var level = PressureLevel.normal

    init(isSupervised: Bool) { self.isSupervised = isSupervised }

    /// Returns the lines for an event.
    ///
    /// - Parameter at: time of observation; records of the supervisor carry a time of their own.
    mutating func lines(_ event: TrioEvent, at: Duration) -> [String] {
        switch event {
        case .audit(let audit):
            var lines: [String] = []
            if audit.level != level {
                level = audit.level
                let short = audit.shortfall > .zero ? ", \(audit.shortfall) short" : ""
                lines.append(line("memory is at level \(level)\(short)", audit.at))
            }
            if let text = Self.text(audit) { lines.append(line(text, audit.at)) }
            return lines
        case .line(let level, let usage):
            // With a supervisor, levels come from the supervisor's records.
            guard !isSupervised else { return [] }
            self.level = level
            let what = level == .normal ? "below the warning line" : "beyond the \(level) line"
            return [
                line(
                    "memory is \(what) with \(Text.mebibytes(usage)) MiB\(level > .normal ? ", and no supervisor acts" : "")",
                    at)
            ]
        case .ended(let unit, let ending):
            switch ending.cause {
            case .supervisor: return []
            case .kernel: return [line("\(unit): KILLED by the kernel", at)]
            case .itself: return [line("\(unit): ended by itself", at)]
            }
        }
    }

    private func line(_ text: String, _ at: Duration) -> String {
        Text.right(Text.fixed(at.inSeconds, decimals: 2), 6) + " s  " + Text.left("\(level)", 10) + printable(text)
    }

    /// Returns the text of a record; `nil` for a result that adds nothing to the decision.
    static func text(_ audit: AuditRecord) -> String? {
        guard let result = audit.result else { return Explanation.sentence(audit) }
        if result.failure != nil { return Explanation.sentence(audit) }
        let relief = result.relief > .zero ? "; \(Text.mebibytes(result.relief)) MiB freed" : ""
        let took = "after \(Text.number(result.took.milliseconds, decimals: 0)) ms"
        switch audit.action.kind {
        case .suspend: return "  \(audit.unit) suspended \(took)\(relief)"
        case .end: return "  \(audit.unit) ended \(took)\(relief)"
        case .resume: return "  \(audit.unit) resumed \(took)"
        case .reclaim: return "  \(audit.unit) relieved of reclaimable memory \(took)\(relief)"
        case .warn, .release, .share, .background, .throttle, .start:
            return relief.isEmpty ? nil : "  \(audit.unit), \(took)\(relief)"
        }
    }
}

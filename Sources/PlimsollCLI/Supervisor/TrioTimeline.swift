import Plimsoll
import PlimsollSupervisor

/// What happens to the three.
enum TrioEvent {
    /// The supervisor decided or did something; times since the start.
    case audit(AuditRecord)
    /// The group's memory has passed the line of that level, or has fallen below it.
    case line(PressureLevel, ByteCount)
    case ended(String, TrioRecord.Ending)
}

extension TrioRecord {
    /// The level whose line lies below `usage`: the standard margins below the limit.
    static func line(passedBy usage: ByteCount, limit: ByteCount) -> PressureLevel {
        PressureLevel.allCases.last { usage > line(of: $0, limit: limit) } ?? .normal
    }

    /// Where that level begins by its margin alone, whatever the growth; zero for `normal`.
    static func line(of level: PressureLevel, limit: ByteCount) -> ByteCount {
        let thresholds = PressureThresholds.standard
        switch level {
        case .normal: return .zero
        case .warning: return limit - thresholds.warningMargin.below(limit)
        case .critical: return limit - thresholds.criticalMargin.below(limit)
        }
    }
}

/// A play as it happens, lines for whatever happens: seconds since the services were started, the level, what.
struct TrioTimeline {
    let isSupervised: Bool
    private var level = PressureLevel.normal

    init(isSupervised: Bool) { self.isSupervised = isSupervised }

    /// - Parameter at: when it was seen; what the supervisor tells has a time of its own.
    mutating func lines(_ event: TrioEvent, at: Duration) -> [String] {
        switch event {
        case .audit(let audit):
            var lines: [String] = []
            if audit.level != level {
                level = audit.level
                let short = audit.shortfall > .zero ? "; \(audit.shortfall) are short" : ""
                lines.append(line("memory is at level \(level)\(short)", audit.at))
            }
            if let text = Self.text(audit) { lines.append(line(text, audit.at)) }
            return lines
        case .line(let level, let usage):
            // The supervisor has its own mind about levels.
            guard !isSupervised else { return [] }
            self.level = level
            let what = level == .normal ? "below the warning line" : "beyond the \(level) line"
            return [line("memory is \(what) with \(Text.mebibytes(usage)) MiB\(level > .normal ? ", and nobody does anything" : "")", at)]
        case .ended(let unit, let ending):
            switch ending.cause {
            case .supervisor: return []
            case .kernel: return [line("\(unit): KILLED by the kernel", at)]
            case .itself: return [line("\(unit): has ended by itself", at)]
            }
        }
    }

    private func line(_ text: String, _ at: Duration) -> String {
        Text.right(Text.fixed(at.inSeconds, decimals: 2), 6) + " s  " + Text.left("\(level)", 10) + printable(text)
    }

    /// What a record is told as; `nil` for what came of it where that says no more than the decision.
    static func text(_ audit: AuditRecord) -> String? {
        guard let result = audit.result else { return Explanation.sentence(audit) }
        if result.failure != nil { return Explanation.sentence(audit) }
        let relief = result.relief > .zero ? "; \(Text.mebibytes(result.relief)) MiB came back" : ""
        let took = "after \(Text.number(result.took.milliseconds, decimals: 0)) ms"
        switch audit.action.kind {
        case .suspend: return "  \(audit.unit) stands still \(took)\(relief)"
        case .end: return "  \(audit.unit) has ended \(took)\(relief)"
        case .resume: return "  \(audit.unit) runs again \(took)"
        case .pushOut: return "  \(audit.unit) has lost what can be had again, \(took)\(relief)"
        case .warn, .release, .background, .throttle, .start: return relief.isEmpty ? nil : "  \(audit.unit), \(took)\(relief)"
        }
    }
}

import Plimsoll
import PlimsollSupervisor

/// A mark in the chart.
struct TrioMark: Equatable {
    var at: Duration
    var text: String
    /// True if the kernel killed a member.
    var isKill = false

    /// Returns marks for each action on a member, once each, and for each kill by the kernel. Actions on several
    /// members at once share one mark.
    static func all(of record: TrioRecord) -> [TrioMark] {
        var deeds: [(at: Duration, units: [String], what: String)] = []
        for audit in record.audits {
            guard let what = text(audit), !deeds.contains(where: { $0.what == what && $0.units.contains(audit.unit) })
            else { continue }
            if let last = deeds.lastIndex(where: { $0.what == what && audit.at - $0.at < together }) {
                deeds[last].units.append(audit.unit)
            } else {
                deeds.append((audit.at, [audit.unit], what))
            }
        }
        let kills = Trio.members.compactMap { member in
            record.endings[member.name].flatMap {
                $0.cause == .kernel ? TrioMark(at: $0.at, text: "the kernel kills \(member.name)", isKill: true) : nil
            }
        }
        return (deeds.map { TrioMark(at: $0.at, text: "\($0.units.joined(separator: ", ")) \($0.what)") } + kills)
            .sorted { $0.at < $1.at }
    }

    private static let together = Duration.milliseconds(200)

    /// Returns the text of a mark; `nil` for records without a mark. Messages are marked when sent, actions when
    /// done.
    private static func text(_ audit: AuditRecord) -> String? {
        guard !audit.isDryRun, audit.result?.failure == nil else { return nil }
        switch (audit.action, audit.result) {
        case (.warn(let level), nil) where level > .normal: return "told: \(level)"
        case (.background, nil): return "to the background"
        case (.suspend, .some): return "made to stand still"
        case (.resume, .some): return "let run again"
        case (.start, .some): return "started again"
        case (.end, .some(let result)):
            return "ended" + (result.relief > .zero ? ", \(Text.mebibytes(result.relief)) MiB came back" : "")
        default: return nil
        }
    }
}

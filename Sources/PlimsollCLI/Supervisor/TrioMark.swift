import Plimsoll
import PlimsollSupervisor

/// Something that is marked in the chart.
struct TrioMark: Equatable {
    var at: Duration
    var text: String
    /// The kernel did it.
    var isKill = false

    /// What was done to members, each thing once, and whom the kernel killed. What is done to several at once is one mark.
    static func all(of record: TrioRecord) -> [TrioMark] {
        var deeds: [(at: Duration, units: [String], what: String)] = []
        for audit in record.audits {
            guard let what = text(audit), !deeds.contains(where: { $0.what == what && $0.units.contains(audit.unit) }) else { continue }
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
        return (deeds.map { TrioMark(at: $0.at, text: "\($0.units.joined(separator: ", ")) \($0.what)") } + kills).sorted { $0.at < $1.at }
    }

    private static let together = Duration.milliseconds(200)

    /// `nil` for what is not marked: words when they are sent, deeds when they are done.
    private static func text(_ audit: AuditRecord) -> String? {
        guard !audit.isDryRun, audit.result?.failure == nil else { return nil }
        switch (audit.action, audit.result) {
        case (.warn(let level), nil) where level > .normal: return "told: \(level)"
        case (.background, nil): return "to the background"
        case (.suspend, .some): return "made to stand still"
        case (.resume, .some): return "let run again"
        case (.start, .some): return "started again"
        case (.end, .some(let result)): return "ended" + (result.relief > .zero ? ", \(Text.mebibytes(result.relief)) MiB came back" : "")
        default: return nil
        }
    }
}

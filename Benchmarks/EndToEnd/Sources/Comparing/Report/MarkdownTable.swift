import Foundation

/// The runs as tables, one for each limit and load.
struct MarkdownTable {
    let cell: Cell

    private static let titles = [
        "variant", "good/s, worst", "pictures/s", "sessions/s", "uploads", "exports", "refused", "late", "killed",
        "p50 / p99 ms, pictures",
        "p99 ms, sessions", "hit % pictures; sessions", "mean / peak MiB", "processors; neighbours",
        "s at warning; critical", "changes of level",
    ]

    var text: String {
        let best = cell.bestTuned()
        var lines = ["### \(cell.limitBytes >> 20) MiB, \(cell.load)", ""]
        lines.append("| " + Self.titles.joined(separator: " | ") + " |")
        lines.append(String(repeating: "|---", count: Self.titles.count) + "|")
        for variant in cell.runs.keys.sorted(by: Self.precedes) {
            let name = variant == best ? "\(variant) (best tuned)" : variant
            lines.append("| " + ([name] + row(variant)).joined(separator: " | ") + " |")
        }
        return lines.joined(separator: "\n") + "\n"
    }

    /// Orders variants by name, with numbers by size: fixed-5 before fixed-10.
    private static func precedes(_ one: String, _ other: String) -> Bool {
        one.compare(other, options: .numeric) == .orderedAscending
    }

    /// Seconds of a run at a level; `nil` without a manager.
    private func secondsAt(_ level: String, _ run: RunRecord) -> Double? {
        run.server.flatMap { $0.transitions == nil ? nil : $0.secondsAtLevel[level] ?? 0 }
    }

    private func row(_ variant: String) -> [String] {
        func number(_ decimals: Int, _ value: (RunRecord) -> Double?) -> String {
            Figures.text(cell.median(variant, value), decimals)
        }
        func perSecond(_ route: Route) -> String {
            number(0) { run in run.result.map { Double($0[route].good) / run.seconds } }
        }
        func share(_ part: Int, _ whole: Int) -> String {
            Figures.text(whole == 0 ? nil : Double(part) / Double(whole) * 100, 2) + " %"
        }
        func served(_ route: Route) -> String {
            "\(cell.sum(variant, [route], \.good)) of \(cell.sum(variant, [route], \.due))"
        }
        func hits(_ route: Route) -> String { number(1) { $0.result?[route].hitRatio.map { $0 * 100 } } }
        let runs = cell.runs[variant] ?? [], killed = runs.filter(\.wasKilled)
        let due = cell.sum(variant, Route.allCases, \.due)
        let whenKilled = Statistics.median(killed.compactMap { $0.goneAfterSeconds ?? $0.result?.goneAtSeconds })
        return [
            "\(number(0) { $0.goodPerSecond }), \(Figures.text(cell.worst(variant) { $0.goodPerSecond }, 0))",
            perSecond(.picture),
            perSecond(.session),
            served(.upload), served(.export), share(cell.sum(variant, Route.allCases, \.refused), due),
            share(cell.sum(variant, Route.allCases, \.late), due),
            "\(killed.count) of \(runs.count)" + (killed.isEmpty ? "" : ", after \(Figures.text(whenKilled, 0)) s"),
            "\(number(1) { $0.result?[.picture].p50 }) / \(number(0) { $0.result?[.picture].p99 })",
            number(0) { $0.result?[.session].p99 },
            "\(hits(.picture)); \(hits(.session))",
            "\(number(0) { $0.meanResidentBytes / 1_048_576 }) / \(number(0) { Double($0.peakResidentBytes) / 1_048_576 })",
            "\(number(2) { $0.processors }); \(number(2) { $0.neighbours })",
            "\(number(1) { secondsAt("warning", $0) }); \(number(1) { secondsAt("critical", $0) })",
            number(0) { $0.server?.transitions.map { Double($0) } },
        ]
    }
}

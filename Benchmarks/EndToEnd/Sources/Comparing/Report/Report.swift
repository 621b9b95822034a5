/// Tables of a comparison, and figures for the record.
public struct Report {
    private let cells: [Cell]

    public init(_ records: [RunRecord]) { cells = Cell.cells(records) }

    /// Tables as Markdown.
    public var tables: String { cells.map { MarkdownTable(cell: $0).text }.joined(separator: "\n") }

    /// Bars for each limit and load under which Plimsoll ran.
    public var panels: [GoodputPanel] { cells.compactMap { GoodputPanel($0) } }

    /// Lines `figure NAME VALUE UNIT`, of each managed variant that ran.
    public var figures: [String] {
        let ran = Set(cells.flatMap { $0.runs.keys })
        return ["plimsoll", "plimsoll-heap", "plimsoll-heap-proportional", "plimsoll-unshed"].filter {
            ran.contains($0)
        }
        .flatMap { figures(of: $0) }
    }

    private func figures(of variant: String) -> [String] {
        var lines: [String] = []
        func figure(_ name: String, _ value: Double?, _ unit: String, decimals: Int = 3) {
            if let value { lines.append("figure e2e.\(name) \(Figures.text(value, decimals)) \(unit)") }
        }
        let pairs = pairs(variant) { $0.bestTuned() }
        let goodput = pairs.compactMap { ratio($0, variant, $1) { $0.goodPerSecond } }
        figure("goodput.\(variant)-to-best-tuned", Statistics.median(goodput), "times")
        figure("goodput.\(variant)-to-best-tuned.worst", goodput.min(), "times")
        let safe = self.pairs(variant) { $0.bestTuned(among: safelyTuned(at: $0.limitBytes)) }.compactMap {
            ratio($0, variant, $1) { $0.goodPerSecond }
        }
        figure("goodput.\(variant)-to-safe-tuned", Statistics.median(safe), "times")
        let fixed = self.pairs(variant) { $0.runs["fixed-40"] == nil ? nil : "fixed-40" }
        figure("goodput.\(variant)-to-fixed-40", totalRatio(fixed, variant), "times")
        let each = fixed.compactMap { ratio($0, variant, $1) { $0.goodPerSecond } }
        figure("goodput.\(variant)-to-fixed-40.median", Statistics.median(each), "times")

        let runs = cells.flatMap { $0.runs[variant] ?? [] }
        figure("kills.\(variant)", Double(runs.count(where: \.wasKilled)), "of_\(runs.count)", decimals: 0)
        figure("refused.\(variant)", refused(variant, pairs.map(\.0), Route.allCases), "%", decimals: 2)
        figure("refused-uploads.\(variant)", refused(variant, pairs.map(\.0), [.upload]), "%", decimals: 2)
        figure(
            "p99.\(variant)-to-best-tuned",
            Statistics.median(pairs.compactMap { ratio($0, variant, $1) { $0.result?[.picture].p99 } }), "times")
        let hits = pairs.compactMap { ratio($0, variant, $1) { $0.result?[.session].hitRatio } }
        figure("expensive-hits.\(variant)-to-best-tuned", Statistics.median(hits), "times")
        let held = runs.compactMap { $0.server?.heldSeconds }, suffix = variant == "plimsoll" ? "" : ".\(variant)"
        figure("held-after-burst\(suffix)", held.max(), "s", decimals: 1)
        figure("held-after-burst.median\(suffix)", Statistics.median(held), "s", decimals: 1)
        return lines
    }

    /// Returns the cells in which `variant` ran, each with the variant for the comparison. Cells without one are left
    /// out.
    private func pairs(_ variant: String, _ other: (Cell) -> String?) -> [(Cell, String)] {
        cells.filter { $0.runs[variant] != nil }.compactMap { cell in other(cell).map { (cell, $0) } }
    }

    /// Tuned variants that lived through all loads at a limit: one bound has to do for all of them.
    private func safelyTuned(at limitBytes: Int) -> Set<String> {
        let cells = cells.filter { $0.limitBytes == limitBytes }
        let tuned = Set(cells.flatMap { $0.runs.keys }).filter(Cell.isTuned)
        return tuned.filter { variant in cells.allSatisfy { !$0.isKilled(variant) } }
    }

    private func ratio(_ cell: Cell, _ one: String, _ other: String, _ value: (RunRecord) -> Double?) -> Double? {
        guard let ours = cell.median(one, value), let theirs = cell.median(other, value), theirs > 0 else { return nil }
        return ours / theirs
    }

    /// Returns the goodput of `variant` over all cells together, as a ratio to that of the compared variants. Each
    /// limit and load weighs the same, and a run that died counts the requests served before. `nil` without a cell.
    private func totalRatio(_ pairs: [(Cell, String)], _ variant: String) -> Double? {
        let ours = pairs.reduce(0) { $0 + ($1.0.goodput(variant) ?? 0) },
            theirs = pairs.reduce(0) { $0 + ($1.0.goodput($1.1) ?? 0) }
        return theirs > 0 ? ours / theirs : nil
    }

    /// Returns the share of refused requests, in percent; `nil` if none were due.
    private func refused(_ variant: String, _ cells: [Cell], _ routes: [Route]) -> Double? {
        let due = cells.reduce(0) { $0 + $1.sum(variant, routes, \.due) }
        return due == 0 ? nil : Double(cells.reduce(0) { $0 + $1.sum(variant, routes, \.refused) }) / Double(due) * 100
    }
}

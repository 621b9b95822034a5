/// A chart of each trace at each size: the distance from LRU to the best possible ratio, and the place of the cache
/// under test in between.
struct HitRatioChart {
    let cells: [HitRatioCommand.Cell]

    private static let width = 960.0, left = 220.0, right = 800.0, top = 104.0, rowHeight = 22.0

    var svg: String {
        var svg = SVG()
        let title = "Hit ratios: LRU, PurgeableCache, and the best possible"
        svg.text(title, x: 24, y: 30, "title")
        svg.text(
            "percent of requests, with room for 1, 5 and 20 % of a trace's keys; S3-FIFO is the plain policy by the book",
            x: 24, y: 52, "minor")
        legend(&svg)
        let bottom = Self.top + Double(cells.count) * Self.rowHeight
        for percent in stride(from: 0.0, through: 100, by: 20) {
            svg.line((x(percent), Self.top - 4), (x(percent), bottom), "grid")
            svg.text(Text.number(percent), x: x(percent), y: bottom + 18, "minor", anchor: .middle)
        }
        for (number, cell) in cells.enumerated() {
            draw(
                cell, isFirst: number == 0 || cells[number - 1].trace != cell.trace,
                y: Self.top + (Double(number) + 0.5) * Self.rowHeight, &svg)
        }
        let summary = cells.map { "\($0.trace) \($0.size) %: \(text($0.result))" }
        return svg.document(
            width: Int(Self.width), height: Int(bottom + 36), title: title,
            description: summary.joined(separator: ". "), style: ChartStyle.css)
    }

    private func x(_ percent: Double) -> Double { Self.left + percent / 100 * (Self.right - Self.left) }

    private func draw(_ cell: HitRatioCommand.Cell, isFirst: Bool, y: Double, _ svg: inout SVG) {
        let result = cell.result
        if isFirst {
            svg.text(cell.trace, x: 24, y: y + 4, "head")
            svg.line((24, y - Self.rowHeight / 2), (Self.width - 24, y - Self.rowHeight / 2), "grid")
        }
        svg.text("\(cell.size) %", x: Self.left - 10, y: y + 4, "minor", anchor: .end)
        svg.line((x(result.leastRecentlyUsed), y), (x(result.optimal), y), "span")
        mark(result.leastRecentlyUsed, y, 2, 12, "least", "LRU", &svg)
        mark(result.optimal, y, 4, 12, "best", "best possible", &svg)
        mark(result.s3fifo, y, 3, 16, "book", "S3-FIFO", &svg)
        mark(result.ours, y, 8, 10, "ours", ourName, &svg)
        svg.text(text(result), x: Self.right + 12, y: y + 4, "minor")
    }

    private func mark(
        _ percent: Double, _ y: Double, _ width: Double, _ height: Double, _ style: String, _ name: String,
        _ svg: inout SVG
    ) {
        let title = "\(name) \(Text.number(percent)) %"
        svg.rectangle(x: x(percent) - width / 2, y: y - height / 2, width: width, height: height, style, title: title)
    }

    private func text(_ result: Replay.Result) -> String {
        [result.leastRecentlyUsed, result.ours, result.optimal].map { Text.fixed($0, decimals: 1) }.joined(
            separator: " · ")
    }

    private func legend(_ svg: inout SVG) {
        var place = 24.0
        for (name, style, width) in [
            ("LRU", "least", 2.0), (ourName, "ours", 8), ("S3-FIFO", "book", 3), ("best possible", "best", 4),
        ] {
            svg.rectangle(x: place, y: 66, width: width, height: 12, style, title: name)
            svg.text(name, x: place + 14, y: 77, "minor")
            place += 40 + Double(name.count) * 7
        }
        svg.text("LRU · ours · best", x: Self.right + 12, y: 77, "minor")
    }
}

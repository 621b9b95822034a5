import Foundation

/// A panel of bars for each workload, two beside each other.
struct BarPanels {
    struct Panel: Codable {
        var title: String
        var rows: [Row]
    }

    struct Row: Codable {
        var name: String
        var value: Double
        var label: String
        var isOurs: Bool
    }

    let title: String
    let subtitle: String
    let panels: [Panel]
    /// The axis of all panels. `nil`: each panel has a separate axis, up to the panel's longest bar.
    var axis: Axis?

    /// A linear axis that begins at 0: the length of a bar is proportional to the value.
    struct Axis {
        /// Values at which lines are drawn across the bars.
        var ticks: [Double]
        /// The largest value on the axis.
        var end: Double

        /// Creates an axis up to `most`, with two to four ticks at multiples of 1, 2 or 5 times a power of ten.
        init(upTo most: Double) {
            let end = max(most, .leastNormalMagnitude)
            let power = pow(10, floor(log10(end)))
            let step = [0.2, 0.5, 1].map { $0 * power }.first { end / $0 <= 3.6 } ?? 2 * power
            self.init(ticks: Array(stride(from: 0, through: end, by: step)), end: end)
        }

        init(ticks: [Double], end: Double) { (self.ticks, self.end) = (ticks, end) }

        /// Returns the part of the axis from 0 to `value`.
        func share(_ value: Double) -> Double { min(1, max(0, value / end)) }
    }

    private static let width = 1000.0, margin = 24.0, nameWidth = 160.0, labelWidth = 118.0, rowHeight = 20.0,
        top = 84.0

    var svg: String {
        var svg = SVG()
        svg.text(title, x: Self.margin, y: 30, "title")
        svg.text(subtitle, x: Self.margin, y: 52, "minor")
        var y = Self.top
        for pair in stride(from: 0, to: panels.count, by: 2).map({ panels[$0..<min($0 + 2, panels.count)] }) {
            for (column, panel) in pair.enumerated() {
                draw(panel, x: Self.margin + Double(column) * Self.width / 2, y: y, &svg)
            }
            y += Double(pair.map(\.rows.count).max() ?? 0) * Self.rowHeight + 60
        }
        let summary = panels.map { panel in
            "\(panel.title): " + panel.rows.map { "\($0.name) \($0.label)" }.joined(separator: ", ")
        }
        return svg.document(
            width: Int(Self.width), height: Int(y), title: title, description: summary.joined(separator: ". "),
            style: ChartStyle.css)
    }

    private func draw(_ panel: Panel, x: Double, y: Double, _ svg: inout SVG) {
        let left = x + Self.nameWidth, length = Self.width / 2 - Self.margin - Self.nameWidth - Self.labelWidth
        let bottom = y + 12 + Double(panel.rows.count) * Self.rowHeight
        let axis = self.axis ?? Axis(upTo: panel.rows.map(\.value).max() ?? 1)
        svg.text(panel.title, x: left, y: y, "head")
        for tick in axis.ticks {
            let at = left + axis.share(tick) * length
            svg.line((at, y + 8), (at, bottom), "grid")
            svg.text(Text.number(tick), x: at, y: bottom + 14, "minor", anchor: .middle)
        }
        for (number, row) in panel.rows.enumerated() {
            let isOurs = row.isOurs, middle = y + 12 + (Double(number) + 0.5) * Self.rowHeight
            svg.text(row.name, x: left - 8, y: middle + 4, isOurs ? "ourtext" : "", anchor: .end)
            svg.rectangle(
                x: left, y: middle - 7, width: axis.share(row.value) * length, height: 14, isOurs ? "ours" : "peer",
                title: "\(row.name): \(row.label)")
            svg.text(
                row.label, x: left + axis.share(row.value) * length + 6, y: middle + 4, isOurs ? "ourtext" : "minor")
        }
        svg.line((left, y + 8), (left, bottom), "axis")
    }
}

extension BarPanels {
    private static let titles = [
        ("hits", "hits, 100 k entries"), ("get-or-insert", "get or insert, zipf, 10 % fit"),
        ("mixed", "3 reads, 1 write, zipf"),
        ("string-keys", "hits, String keys"), ("objects-10000", "hits, 10 k objects"),
        ("string-values-10000", "hits, 10 k Strings"),
        ("objects", "hits, 100 k objects"), ("string-values", "hits, 100 k Strings"),
        ("hits-10000", "hits, 10 k entries"), ("hits-1000000", "hits, 1 M entries"),
        ("hits-10000000", "hits, 10 M entries"),
        ("hot-key", "hits, one hot key"),
    ]

    private static func panels(_ records: [RaceRecord], _ workloads: [String], _ row: (RaceRecord) -> Row) -> [Panel] {
        titles.filter { workloads.contains($0.0) }.compactMap { workload, title in
            let rows = records.filter { $0.workload == workload }
            return rows.isEmpty ? nil : Panel(title: title, rows: rows.map(row))
        }
    }

    /// Draws the processor time of an operation.
    static func times(_ records: [RaceRecord]) -> String {
        let workloads =
            ["hits", "get-or-insert", "mixed", "string-keys", "hot-key"] + Workloads.objects + Workloads.sized
        return BarPanels(
            title: "Processor time of an operation, one thread",
            subtitle:
                "nanoseconds; medians of rounds in turn; shorter is better. Each panel has its own scale. The bare Dictionary has no lock and no bound.",
            panels: panels(records, workloads) {
                Row(name: $0.contender, value: $0.processor, unit: "ns", isOurs: $0.contender.hasPrefix(ourName))
            }
        ).svg
    }

    /// Draws the throughput of two threads over that of one.
    static func scaling(_ records: [RaceRecord]) -> String {
        BarPanels(
            title: "Two threads at the same time: throughput over that of one",
            subtitle:
                "operations in the threads' own time, medians of rounds in turn; beside the bars, millions a second of both threads",
            panels: panels(records, ["hits", "get-or-insert", "mixed", "hot-key"]) {
                let factor = $0.throughput2 / $0.throughput
                let label = "\(Text.fixed(factor, decimals: 2)) (\(Row.number($0.throughput2)) M/s)"
                return Row(name: $0.contender, value: factor, label: label, isOurs: $0.contender == ourName)
            },
            axis: Axis(ticks: [0, 1, 2], end: 2.4)
        ).svg
    }

    /// Draws the answers of one service with and without the library, by limit and load.
    static func goodput(_ panels: [Panel]) -> String {
        let most = panels.flatMap(\.rows).map(\.value).max() ?? 1
        return BarPanels(
            title: "One service under a memory limit: requests answered well a second",
            subtitle:
                "medians of runs in turn, the same requests for all; longer is better. A run that was killed counts what was answered before.",
            panels: panels, axis: Axis(ticks: [0, 500, 1000], end: max(1, most))
        ).svg
    }

    /// Draws the other promised properties.
    static func properties(_ panels: [Panel]) -> String {
        BarPanels(
            title: "Inserts, memory, purge",
            subtitle:
                "nanoseconds, bytes and microseconds; shorter is better; each panel has its own scale; grey: others",
            panels: panels
        ).svg
    }
}

extension BarPanels.Row {
    init(name: String, value: Double, unit: String, isOurs: Bool) {
        self.init(name: name, value: value, label: "\(Self.number(value)) \(unit)", isOurs: isOurs)
    }

    fileprivate static func number(_ value: Double) -> String { Text.fixed(value, decimals: value < 100 ? 1 : 0) }
}

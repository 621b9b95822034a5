import Plimsoll
import PlimsollSupervisor

/// Chart of both plays of the three services, one above the other: memory over time, the actions, and the state of
/// each service.
struct SupervisorChart {
    private static let width = 1080.0, left = 112.0, right = 1000.0, rowHeight = 17.0, plotHeight = 170.0,
        bandHeight = 18.0
    private static let title = "Three services, one limit: without a supervisor and with one"

    private let panels: [Panel]
    private let axis: TimeAxis
    private let limit: ByteCount

    private struct Panel {
        var name: String
        var record: TrioRecord
        var labels: LabelRows
        var marks: [TrioMark]
    }

    init(without: TrioRecord, with: TrioRecord) {
        let axis = TimeAxis(
            seconds: max(1, without.length.inSeconds, with.length.inSeconds), left: Self.left, right: Self.right)
        self.axis = axis
        limit = with.limit
        panels = [("Without a supervisor", without), ("With a supervisor", with)].map { name, record in
            let marks = TrioMark.all(of: record)
            return Panel(
                name: name, record: record,
                labels: LabelRows(marks.map { (axis.x($0.at), $0.text) }, end: Self.width - 8), marks: marks)
        }
    }

    /// Styles for light and dark mode. Both colours of a pair are readable on both backgrounds.
    private static let style = """
        text { font: 12px system-ui, sans-serif; fill: #24292f } .title { font-size: 18px; font-weight: 600 } .heading { font-weight: 600 }
        .minor { fill: #57606a } .paper { fill: #ffffff } .grid { stroke: #d8dee4 } .axis { stroke: #57606a } .leader { stroke: #8c959f }
        .important { fill: #54aeff } .bystander { fill: #6fdd8b } .hog { fill: #fb8f44 } .usage { stroke: #24292f; stroke-width: 1.5; fill: none }
        .limit { stroke: #cf222e; stroke-width: 2 } .warn { stroke: #9a6700; stroke-dasharray: 5 4 }
        .kill { stroke: #cf222e; stroke-width: 3 } .killtext { fill: #cf222e; font-weight: 600 }
        .running { fill: #aceebb } .warned { fill: #fae17d } .leaving { fill: #b6d4fe } .suspended { fill: #d8c4f5 } .ended { fill: #d8dee4 }
        .killed { fill: #ffaba8 } .hatch { fill: url(#hatch) } .hatchline { stroke: #6e7781; stroke-width: 1.5 }
        @media (prefers-color-scheme: dark) {
        text { fill: #e6edf3 } .minor { fill: #9198a1 } .paper { fill: #0d1117 } .grid { stroke: #2d333b } .axis { stroke: #9198a1 }
        .leader { stroke: #656c76 } .important { fill: #1f6feb } .bystander { fill: #238636 } .hog { fill: #bd561d } .usage { stroke: #e6edf3 }
        .limit, .kill { stroke: #ff7b72 } .warn { stroke: #d29922 } .killtext { fill: #ff7b72 } .hatchline { stroke: #b1bac4 }
        .running { fill: #1f6f37 } .warned { fill: #845306 } .leaving { fill: #1b4b91 } .suspended { fill: #5a3e93 } .ended { fill: #30363d }
        .killed { fill: #a40e26 } }
        """

    var svg: String {
        var svg = SVG()
        svg.hatching()
        svg.text(Self.title, x: Self.left, y: 28, "title")
        var y = 42.0
        for (index, panel) in panels.enumerated() { draw(panel, at: &y, isLast: index == panels.count - 1, &svg) }
        legend(y + 16, &svg)
        let description = panels.map { "\($0.name): \($0.record.outcome)." }.joined(separator: " ")
        return svg.document(
            width: Int(Self.width), height: Int(y + 34), title: Self.title,
            description:
                "Memory of three services over \(Text.number(axis.seconds)) s under a limit of \(limit). \(description)",
            style: Self.style)
    }

    // MARK: Parts

    private func draw(_ panel: Panel, at y: inout Double, isLast: Bool, _ svg: inout SVG) {
        svg.text(panel.name, x: Self.left, y: y + 14, "heading")
        svg.text(panel.record.outcome, x: Self.left, y: y + 31, "minor")
        let labelsTop = y + 40, plotTop = labelsTop + Double(panel.labels.count) * Self.rowHeight + 6,
            plotBottom = plotTop + Self.plotHeight
        let bandsTop = plotBottom + 6, bandsBottom = bandsTop + Double(Trio.members.count) * (Self.bandHeight + 3)
        memory(panel.record, plotTop, plotBottom, &svg)
        for (index, member) in Trio.members.enumerated() {
            band(member.name, panel.record, bandsTop + Double(index) * (Self.bandHeight + 3), &svg)
        }
        // Drawn last, so that nothing hides the labels.
        for label in panel.labels.labels {
            let labelY = labelsTop + Double(label.row) * Self.rowHeight + 12
            let isKill = panel.marks.contains { $0.isKill && $0.text == label.text }
            svg.line(
                (label.mark, labelY - 10), (label.mark, isKill ? bandsBottom : plotBottom), isKill ? "kill" : "leader")
            svg.text(label.text, x: label.x, y: labelY, isKill ? "killtext" : "")
        }
        axis.draw(bandsBottom, caption: isLast ? "seconds since the start of the services" : nil, &svg)
        y = bandsBottom + (isLast ? 44 : 36)
    }

    /// Draws the members' memory, stacked, with the limit and the level lines.
    private func memory(_ record: TrioRecord, _ top: Double, _ bottom: Double, _ svg: inout SVG) {
        // The scale ends a little above the limit, so that the limit's line is visible.
        let full = Double(record.limit.bytes) * 1.06, mebibyte = 1_048_576.0
        func y(_ size: ByteCount) -> Double { bottom - min(1, max(0, Double(size.bytes) / full)) * (bottom - top) }
        let step = TimeAxis.roundStep(full / mebibyte / 6)
        for size in stride(from: 0, through: full / mebibyte, by: step) {
            let height = y(ByteCount(Int(size * mebibyte)))
            svg.line((Self.left, height), (Self.right, height), "grid")
            svg.text(size == 0 ? "0 MiB" : Text.number(size), x: Self.left - 8, y: height + 4, "minor", anchor: .end)
        }
        for index in Trio.members.indices.reversed() {
            func edge(_ last: Int) -> [(x: Double, y: Double)] {
                record.samples.map { (axis.x($0.at), y($0.charges.prefix(last).reduce(.zero, +))) }
            }
            svg.path(edge(index + 1) + edge(index).reversed(), Trio.members[index].name)
        }
        svg.path(record.samples.map { (axis.x($0.at), y($0.usage)) }, "usage")
        for (name, size, style) in [
            ("limit", record.limit, "limit"), ("critical", TrioRecord.line(of: .critical, limit: record.limit), "warn"),
            ("warning", TrioRecord.line(of: .warning, limit: record.limit), "warn"),
        ] {
            svg.line((Self.left, y(size)), (Self.right, y(size)), style)
            svg.text(name, x: Self.right + 6, y: y(size) + 4, "minor")
        }
    }

    private func band(_ unit: String, _ record: TrioRecord, _ y: Double, _ svg: inout SVG) {
        svg.rectangle(x: 14, y: y + 2, width: 14, height: 14, unit, title: unit)
        svg.text(unit, x: Self.left - 8, y: y + 13, "minor", anchor: .end)
        for band in record.bands(of: unit) {
            let from = axis.x(band.from), width = axis.x(band.to) - from,
                isKilled = band.state == .ended && record.endings[unit]?.cause == .kernel
            let text = isKilled ? "killed" : band.state.text
            let title =
                "\(unit): \(text) from \(Text.number(band.from.inSeconds)) s to \(Text.number(band.to.inSeconds)) s"
            svg.rectangle(
                x: from, y: y, width: width, height: Self.bandHeight, isKilled ? "killed" : band.state.rawValue,
                title: title)
            if band.state == .suspended {
                svg.rectangle(x: from, y: y, width: width, height: Self.bandHeight, "hatch", title: title)
            }
            // Text on hatching is unreadable.
            if band.state != .suspended, LabelRows.width(of: text) + 12 < width {
                svg.text(text, x: from + 6, y: y + 13)
            }
        }
    }

    private func legend(_ y: Double, _ svg: inout SVG) {
        // Starts at the swatches of the bands, because the legend is wider than the plot.
        var place = 14.0
        func entry(_ text: String, _ styles: [String]) {
            for style in styles { svg.rectangle(x: place, y: y - 10, width: 14, height: 12, style, title: text) }
            svg.text(text, x: place + 20, y: y, "minor")
            place += LabelRows.width(of: text) + 34
        }
        for state in TrioState.allCases {
            entry(state.text, state == .suspended ? [state.rawValue, "hatch"] : [state.rawValue])
        }
        entry("killed by the kernel", ["killed"])
        svg.line((place, y - 4), (place + 20, y - 4), "usage")
        svg.text("the whole group, supervisor included", x: place + 26, y: y, "minor")
    }
}

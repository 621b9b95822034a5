import Plimsoll

/// Memory over time of both services: the limit, the levels, the purges and the kill.
struct DemoChart {
    let without: DemoRecord
    let with: DemoRecord
    let limit: ByteCount
    let seconds: Double
    var isSimulated = false

    private let width = 960.0, height = 520.0
    private let left = 70.0, right = 930.0, top = 84.0, bottom = 380.0
    private let levelTop = 412.0, levelHeight = 14.0, purgeTop = 396.0

    /// Styles for light and dark mode. Both colours of a pair are readable on both backgrounds.
    private static let style = """
        text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-size: 18px; font-weight: 600 } .minor { fill: #57606a }
        .paper { fill: #ffffff } .grid { stroke: #d8dee4 } .axis { stroke: #57606a } .limit { stroke: #cf222e; stroke-width: 2 }
        .warn { stroke: #9a6700; stroke-dasharray: 5 4 } .without { stroke: #bc4c00; stroke-width: 2; fill: none }
        .with { stroke: #0969da; stroke-width: 2; fill: none } .fixed { stroke: #0969da; stroke-dasharray: 2 3; fill: none } .drop { stroke: #8250df }
        .kill { stroke: #cf222e; stroke-width: 3 } .killtext { fill: #cf222e; font-weight: 600 }
        .withouttext { fill: #bc4c00; font-weight: 600 } .withtext { fill: #0969da; font-weight: 600 } .purge { stroke: #0969da; stroke-width: 1.5 }
        .normal { fill: #aceebb } .warning { fill: #fae17d } .critical { fill: #ffaba8 }
        @media (prefers-color-scheme: dark) {
        text { fill: #e6edf3 } .minor { fill: #9198a1 } .paper { fill: #0d1117 } .grid { stroke: #2d333b } .axis { stroke: #9198a1 }
        .limit, .kill { stroke: #ff7b72 } .warn { stroke: #d29922 } .without { stroke: #f0883e } .with, .fixed, .purge { stroke: #58a6ff }
        .drop { stroke: #a371f7 }
        .killtext { fill: #ff7b72 } .withouttext { fill: #f0883e } .withtext { fill: #58a6ff }
        .normal { fill: #1f6f37 } .warning { fill: #845306 } .critical { fill: #a40e26 } }
        """

    var svg: String {
        var svg = SVG()
        let heading =
            "One service, one limit, the same traffic: without and with Plimsoll" + (isSimulated ? " (simulated)" : "")
        let summary = DemoRecord.result(without: without, with: with).dropFirst("result: ".count)
        svg.text(heading, x: left, y: 30, "title")
        svg.text(String(summary), x: left, y: 52, "minor")
        axes(&svg)
        lines(&svg)
        curves(&svg)
        levels(&svg)
        return svg.document(
            width: Int(width), height: Int(height), title: heading,
            description: "Memory charged to each service's group over time, with the limit at \(limit). \(summary).",
            style: Self.style)
    }

    // MARK: Parts

    private func x(_ at: Duration) -> Double { left + min(1, max(0, at.inSeconds / seconds)) * (right - left) }
    /// Returns the y coordinate of a size. The scale ends a little above the limit, so that the limit's line is
    /// visible.
    private func y(_ size: ByteCount) -> Double {
        bottom - min(1, max(0, Double(size.bytes) / (Double(limit.bytes) * 1.08))) * (bottom - top)
    }

    private func axes(_ svg: inout SVG) {
        let step = TimeAxis.roundStep(Double(limit.bytes) / 1_048_576 / 5)
        var size = 0.0
        while size * 1_048_576 <= Double(limit.bytes) * 1.08 {
            let height = y(ByteCount(Int(size * 1_048_576)))
            svg.line((left, height), (right, height), "grid")
            svg.text(Text.number(size), x: left - 8, y: height + 4, "minor", anchor: .end)
            size += step
        }
        svg.text("MiB charged to the group", x: left, y: top - 10, "minor")
        let timeStep = TimeAxis.roundStep(seconds / 10)
        var time = 0.0
        while time <= seconds {
            svg.line((x(.seconds(time)), bottom), (x(.seconds(time)), bottom + 4), "axis")
            svg.text(Text.number(time), x: x(.seconds(time)), y: levelTop + levelHeight + 18, "minor", anchor: .middle)
            time += timeStep
        }
        svg.line((left, bottom), (right, bottom), "axis")
        svg.text(
            "seconds since the services began", x: (left + right) / 2, y: levelTop + levelHeight + 38, "minor",
            anchor: .middle)
    }

    private func lines(_ svg: inout SVG) {
        let thresholds = PressureThresholds.standard
        svg.line((left, y(limit)), (right, y(limit)), "limit")
        svg.text("limit \(limit): the kernel kills", x: right, y: y(limit) - 5, "killtext", anchor: .end)
        for (margin, name) in [
            (thresholds.warningMargin, "warning line"), (thresholds.criticalMargin, "critical line"),
        ] {
            let height = y(limit - margin.below(limit))
            svg.line((left, height), (right, height), "warn")
            svg.text(name, x: right, y: height - 4, "minor", anchor: .end)
        }
    }

    private func curves(_ svg: inout SVG) {
        for record in [without, with] {
            let points = record.samples.map { (x: x($0.at), y: y($0.usage)) }
            svg.path(points, record.name)
            // Label each curve where both are apart: half-way up to the limit, or at three quarters of the run.
            guard let at = record.samples.first(where: { $0.usage > limit * 0.45 }) ?? record.samples.last else {
                continue
            }
            if record.isProtected {
                let middle = record.samples[record.samples.count * 3 / 4]
                svg.text("with Plimsoll", x: x(middle.at), y: y(middle.usage) + 34, "withtext", anchor: .middle)
                svg.path(record.samples.map { (x: x($0.at), y: y($0.fixed)) }, "fixed")
                svg.text(
                    "of it, not reclaimable", x: x(middle.at), y: y(middle.fixed) + 18, "withtext",
                    anchor: .middle)
            } else {
                svg.text("without", x: x(at.at) - 8, y: y(at.usage), "withouttext", anchor: .end)
            }
            if case .killed(let at) = record.fate {
                let place = (x: x(at), y: y(limit))
                svg.line((place.x - 7, place.y - 7), (place.x + 7, place.y + 7), "kill")
                svg.line((place.x - 7, place.y + 7), (place.x + 7, place.y - 7), "kill")
                svg.text("killed at \(Text.number(at.inSeconds)) s", x: place.x + 12, y: place.y - 5, "killtext")
            }
        }
    }

    /// Draws the strip below the plot: the level in force, and a tick for each purge and each reclaim by the kernel.
    private func levels(_ svg: inout SVG) {
        for drop in with.drops { svg.line((x(drop.at), purgeTop), (x(drop.at), purgeTop + 12), "drop") }
        for purge in with.purges { svg.line((x(purge.at), purgeTop), (x(purge.at), purgeTop + 12), "purge") }
        svg.text("taken", x: left - 8, y: purgeTop + 10, "minor", anchor: .end)
        svg.text("level", x: left - 8, y: levelTop + 11, "minor", anchor: .end)
        let end = with.samples.last?.at ?? .zero
        var spans = [(at: Duration.zero, level: PressureLevel.normal)] + with.levels
        spans.append((end, .normal))
        for (span, next) in zip(spans, spans.dropFirst()) where next.at > span.at {
            svg.rectangle(
                x: x(span.at), y: levelTop, width: x(next.at) - x(span.at), height: levelHeight, span.level.description,
                title: "\(span.level) from \(Text.number(span.at.inSeconds)) s to \(Text.number(next.at.inSeconds)) s")
        }
        legend(&svg)
    }

    /// Draws the legend of the strip, in two lines at the bottom.
    private func legend(_ svg: inout SVG) {
        var place = left
        for level in PressureLevel.allCases {
            svg.rectangle(x: place, y: height - 46, width: 14, height: 12, level.description, title: level.description)
            svg.text(level.description, x: place + 20, y: height - 36, "minor")
            place += 100
        }
        svg.text("level of the service with Plimsoll", x: place, y: height - 36, "minor")
        svg.text(
            "a tick above the level: memory that Plimsoll released (blue) or that the kernel reclaimed (violet)",
            x: left,
            y: height - 16, "minor")
    }
}

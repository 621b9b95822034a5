import Plimsoll
import PlimsollLifecycle

/// Chart of the states of a process and its scenes over time, with their resources, work and requests.
struct LifecycleChart {
    let record: LifecycleRecord

    private static let width = 1080.0, left = 112.0, right = 960.0, top = 64.0, rowHeight = 17.0
    private static let title = "A service process and its life cycle"

    private let seconds: Double
    private let axis: TimeAxis
    private let labels: LabelRows

    init(_ record: LifecycleRecord) {
        self.record = record
        let seconds = max(1, record.length.inSeconds)
        self.seconds = seconds
        let axis = TimeAxis(seconds: seconds, left: Self.left, right: Self.right)
        self.axis = axis
        labels = LabelRows(Self.marks(record).map { (axis.x($0.at), $0.text) }, end: Self.width - 8)
    }

    /// Styles for light and dark mode. Both colours of a pair are readable on both backgrounds.
    private static let style = """
        text { font: 12px system-ui, sans-serif; fill: #24292f } .title { font-size: 18px; font-weight: 600 } .minor { fill: #57606a }
        .paper { fill: #ffffff } .axis { stroke: #57606a } .leader { stroke: #afb8c1 } .hatch { fill: url(#hatch) } .hatchline { stroke: #6e7781; stroke-width: 1.5 }
        .active { fill: #7ee2a0 } .inactive { fill: #fae17d } .background { fill: #b6d4fe } .suspended { fill: #d8c4f5 } .notRunning { fill: #eaeef2 }
        .held { fill: #8ab4e8 } .task { fill: #8ab4e8 } .grace { fill: #ffaba8 } .limit { stroke: #cf222e; stroke-width: 2 }
        .tick { stroke: #0969da; stroke-width: 1.5 } .answered { stroke: #1a7f37; stroke-width: 2 } .refused { stroke: #bf8700; stroke-width: 2 }
        .closed { stroke: #afb8c1; stroke-width: 2 } .silent { stroke: #cf222e; stroke-width: 2 } .change { stroke: #8250df; stroke-width: 2 }
        @media (prefers-color-scheme: dark) {
        text { fill: #e6edf3 } .minor { fill: #9198a1 } .paper { fill: #0d1117 } .axis { stroke: #9198a1 } .leader { stroke: #3d444d }
        .hatchline { stroke: #b1bac4 }
        .active { fill: #1f6f37 } .inactive { fill: #845306 } .background { fill: #1b4b91 } .suspended { fill: #5a3e93 } .notRunning { fill: #21262d }
        .held, .task { fill: #2f5f9e } .grace { fill: #a40e26 } .limit, .silent { stroke: #ff7b72 } .tick { stroke: #58a6ff }
        .answered { stroke: #3fb950 } .refused { stroke: #d29922 } .closed { stroke: #484f58 } .change { stroke: #a371f7 } }
        """

    var svg: String {
        var svg = SVG()
        svg.hatching()
        svg.text(Self.title, x: Self.left, y: 28, "title")
        svg.text(summary, x: Self.left, y: 48, "minor")
        var y = Self.top + Double(labels.count) * Self.rowHeight + 6
        marks(&svg, down: y)
        let rowsTop = y
        for unit in record.units {
            let isProcess = unit == LifecycleEvent.process
            band(unit, at: &y, height: isProcess ? 28 : 17, &svg)
        }
        y += 4
        tasks(at: &y, &svg)
        ticks(at: &y, &svg)
        requests(at: &y, &svg)
        for (name, begin, end) in [
            ("listener", LifecycleEvent.Kind.listening, LifecycleEvent.Kind.closed), ("lock", .locked, .unlocked),
            ("key", .filled, .wiped),
        ] {
            held(name, record.spans(from: begin, to: end), at: &y, &svg)
        }
        for suspension in record.suspensions {
            svg.rectangle(
                x: x(suspension.from), y: rowsTop, width: x(suspension.to) - x(suspension.from),
                height: y - rowsTop - 6, "hatch",
                title:
                    "\(suspension.isFreezer ? "frozen" : "stopped") for \(Text.number((suspension.to - suspension.from).inSeconds)) s"
            )
        }
        axis.draw(y, caption: "seconds since the launch", &svg)
        legend(y + 58, &svg)
        return svg.document(
            width: Int(Self.width), height: Int(y + 76), title: Self.title, description: description, style: Self.style)
    }

    // MARK: Parts

    private func x(_ at: Duration) -> Double { axis.x(at) }

    private var summary: String {
        let answered = record.requests.count { $0.outcome == .answered }
        let suspended = record.suspensions.map {
            "\(Text.number(($0.to - $0.from).inSeconds)) s by \($0.isFreezer ? "the freezer" : "SIGSTOP")"
        }
        return
            "\(answered) of \(record.requests.count) requests answered; suspended for \(suspended.joined(separator: " and "))"
    }

    private var description: String {
        "States over \(Text.number(seconds)) s: "
            + record.bands(of: LifecycleEvent.process).map { "\($0.state) from \(Text.number($0.from.inSeconds)) s" }
            .joined(separator: ", ") + "."
    }

    /// Returns the marks above the rows.
    static func marks(_ record: LifecycleRecord) -> [(at: Duration, text: String)] {
        let names: [(LifecycleRecord.Step, String)] = [
            (.launch, "launch"), (.interrupt, "interruption"), (.resume, "end of it"), (.task, "long task"),
            (.background, "to the background"),
            (.stop, "SIGSTOP"), (.go, "SIGCONT"), (.foreground, "to the foreground"), (.freeze, "frozen"),
            (.thaw, "thawed"), (.terminate, "SIGTERM"),
            (.relaunch, "second launch"),
        ]
        var marks = names.compactMap { step, name in record.steps[step].map { ($0, name) } }
        for seen in record.events(.expired) { marks.append((seen.at, "task expires")) }
        for seen in record.events(.changed) { marks.append((seen.at, "\(seen.event.number ?? 0) changes, one event")) }
        for seen in record.events(.restored, run: 2) { marks.append((seen.at, "state restored")) }
        return marks
    }

    private func marks(_ svg: inout SVG, down bottom: Double) {
        for label in labels.labels {
            let y = Self.top + Double(label.row) * Self.rowHeight + 12
            svg.line((label.mark, y - 10), (label.mark, bottom), "leader")
            svg.text(label.text, x: label.x, y: y)
        }
    }

    private func name(_ text: String, _ y: Double, _ svg: inout SVG) {
        svg.text(text, x: Self.left - 10, y: y, "minor", anchor: .end)
    }

    private func band(_ unit: String, at y: inout Double, height: Double, _ svg: inout SVG) {
        name(unit, y + height / 2 + 4, &svg)
        for band in record.bands(of: unit) {
            let (from, to) = (x(band.from), x(band.to)), text = "\(band.state)"
            let span = "from \(Text.number(band.from.inSeconds)) s to \(Text.number(band.to.inSeconds)) s"
            svg.rectangle(x: from, y: y, width: to - from, height: height, text, title: "\(unit): \(text) \(span)")
            guard unit == LifecycleEvent.process, band.state != .notRunning, LabelRows.width(of: text) + 8 <= to - from
            else { continue }
            svg.text(text, x: from + 6, y: y + height / 2 + 4)
        }
        y += height + 3
    }

    private func tasks(at y: inout Double, _ svg: inout SVG) {
        let height = 14.0
        name("task", y + 11, &svg)
        let expiries = record.events(.expired)
        for span in record.spans(from: .began, to: .ended) {
            let expiry = expiries.first { $0.at >= span.from && $0.at <= span.to }
            let end = expiry?.at ?? span.to
            svg.rectangle(
                x: x(span.from), y: y, width: x(end) - x(span.from), height: height, "task", title: "long task")
            guard let expiry else { continue }
            svg.rectangle(
                x: x(end), y: y, width: x(span.to) - x(end), height: height, "grace",
                title: "asked to stop (\(expiry.event.cause ?? ""))")
            svg.line((x(expiry.at), y - 2), (x(expiry.at), y + height + 2), "limit")
        }
        y += height + 6
    }

    private func ticks(at y: inout Double, _ svg: inout SVG) {
        guard !record.events(.tick).isEmpty else { return }
        name("ticks", y + 11, &svg)
        for seen in record.events(.tick) { svg.line((x(seen.at), y), (x(seen.at), y + 14), "tick") }
        for seen in record.events(.changed) { svg.line((x(seen.at), y - 2), (x(seen.at), y + 16), "change") }
        y += 20
    }

    private func requests(at y: inout Double, _ svg: inout SVG) {
        name("requests", y + 11, &svg)
        for request in record.requests {
            svg.line((x(request.at), y), (x(request.at), y + 14), request.outcome.rawValue)
        }
        y += 20
    }

    private func held(_ label: String, _ spans: [(from: Duration, to: Duration)], at y: inout Double, _ svg: inout SVG)
    {
        guard !spans.isEmpty else { return }
        name(label, y + 9, &svg)
        for span in spans {
            svg.rectangle(
                x: x(span.from), y: y, width: x(span.to) - x(span.from), height: 10, "held", title: "\(label) held")
        }
        y += 16
    }

    private func legend(_ y: Double, _ svg: inout SVG) {
        var place = Self.left
        func text(_ text: String) {
            svg.text(text, x: place, y: y, "minor")
            place += LabelRows.width(of: text) + 14
        }
        for state in LifecycleState.allCases.reversed() where state != .suspended && state != .notRunning {
            svg.rectangle(x: place, y: y - 10, width: 14, height: 12, "\(state)", title: "\(state)")
            place += 20
            text("\(state)")
        }
        svg.rectangle(x: place, y: y - 10, width: 14, height: 12, "hatch", title: "does not run")
        place += 20
        text("does not run")
        for outcome in LifecycleRecord.Outcome.allCases {
            svg.line((place + 2, y - 10), (place + 2, y + 2), outcome.rawValue)
            place += 10
            text(outcome == .closed ? "not listening" : outcome == .silent ? "no answer" : outcome.rawValue)
        }
    }
}

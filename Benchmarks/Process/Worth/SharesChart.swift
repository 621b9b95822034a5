import Plimsoll
import PlimsollDemos

/// Draws the memory that caches hold over a run in which two of them swap their streams.
struct SharesChart {
    private let mix: Mix
    private let budget: Int
    private let requests: Int
    /// Bytes held by each cache, after each of `steps` equal parts of the run.
    private let held: [[Int]]
    private static let steps = 240

    /// Runs the mix with division by worth.
    init(_ mix: Mix, _ traces: [TraceFile], rate: Double) {
        let run = MixedRequests(mix, traces), budget = run.bytes(of: mix.budget)
        let caches = SharedCaches(mix, budget: budget, .byWorth, rate: rate)
        var held: [[Int]] = []
        let step = max(1, run.requests.count / Self.steps)
        for (index, request) in run.requests.enumerated() {
            caches.request(request)
            if index % step == step - 1 { held.append(caches.held) }
        }
        (self.mix, self.budget, self.requests, self.held) = (mix, budget, run.requests.count, held)
    }

    private static let style = """
        .paper { fill: #ffffff; }
        text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1b232c; }
        .title { font-size: 16px; font-weight: 600; }
        .dim { fill: #55616e; }
        .grid { stroke: #d5dae0; stroke-width: 1; }
        .mark { stroke: #3a444f; stroke-width: 1.5; stroke-dasharray: 5 4; }
        .curve0, .curve1, .curve2 { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
        .curve0 { stroke: #1763c6; } .curve1 { stroke: #bd2318; stroke-dasharray: 9 3; } .curve2 { stroke: #8f5a00; stroke-dasharray: 2 3; }
        """

    /// The drawing.
    var svg: String {
        let width = 880.0, left = 64.0, right = 690.0, roof = 64.0, floor = 330.0
        var svg = SVG()
        func x(_ part: Double) -> Double { left + part * (right - left) }
        func y(_ share: Double) -> Double { floor - share * (floor - roof) }
        svg.text("Three caches share \(ByteCount(budget)) by worth", x: 20, y: 28, "title")
        svg.text("memory held; in the middle of the run two caches swap their requests", x: 20, y: 48, "dim")
        for share in [0, 0.25, 0.5, 0.75, 1] {
            svg.line((left, y(share)), (right, y(share)), "grid")
            svg.text("\(Int(share * 100)) %", x: left - 8, y: y(share) + 4, "dim", anchor: .end)
        }
        for shift in mix.shifts {
            svg.line((x(shift.at), roof), (x(shift.at), floor), "mark")
            svg.text("swap", x: x(shift.at), y: floor + 20, "dim", anchor: .middle)
        }
        svg.text("0", x: left, y: floor + 20, "dim", anchor: .middle)
        svg.text("\(requests / 1000) thousand requests", x: right, y: floor + 20, "dim", anchor: .end)
        for (index, cache) in mix.caches.enumerated() {
            let points = held.enumerated().map { step, held in
                (
                    x: x(Double(step + 1) / Double(Self.steps)),
                    y: y(min(1, Double(held[index]) / Double(max(1, budget))))
                )
            }
            svg.path(points, "curve\(index % 3)")
            if let last = points.last { svg.text(cache.name, x: right + 8, y: last.y + 4) }
        }
        let ends = zip(mix.caches, held.last ?? []).map { "\($0.name) \($1 * 100 / max(1, budget)) %" }
        return svg.document(
            width: Int(width), height: 362, title: "Memory of three caches over a swap of requests",
            description: "Shares at the end: \(ends.joined(separator: ", ")).", style: Self.style)
    }
}

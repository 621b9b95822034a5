/// The bars for one limit and load: good answers a second of the best hand-tuned variant, of Plimsoll, and of common
/// first choices.
///
/// `cache-bench report --end-to-end` draws a file of panels, so the names of the properties are the file's.
public struct GoodputPanel: Codable, Equatable, Sendable {
    /// One variant's bar.
    public struct Row: Codable, Equatable, Sendable {
        public var name: String
        public var value: Double
        public var label: String
        public var isOurs: Bool
    }

    public var title: String
    public var rows: [Row]

    /// Variants that have a bar beside the best tuned one, each with a readable name.
    private static let variants = [
        ("plimsoll", "Plimsoll, nothing set"), ("fixed-40", "fixed at 40 %"), ("none", "no bound"),
    ]

    init?(_ cell: Cell) {
        guard cell.runs["plimsoll"] != nil else { return nil }
        title = "\(cell.limitBytes >> 20) MiB, \(cell.load)"
        let best = cell.bestTuned()
        let byHand = cell.runs.keys.filter(Cell.isTuned).count
        rows = [
            best.map { Row(cell, $0, "best by hand: \($0)") }
                ?? Row(name: "best by hand", value: 0, label: "none of \(byHand) lived", isOurs: false)
        ]
        rows += Self.variants.filter { cell.runs[$0.0] != nil && $0.0 != best }.map { Row(cell, $0.0, $0.1) }
    }
}

extension GoodputPanel.Row {
    init(_ cell: Cell, _ variant: String, _ name: String) {
        let runs = cell.runs[variant] ?? [], killed = runs.count(where: \.wasKilled),
            goodput = cell.goodput(variant) ?? 0
        let end = killed == 0 ? "" : ", killed \(killed) of \(runs.count)"
        self.init(
            name: name, value: goodput, label: Figures.text(goodput, 0) + "/s" + end,
            isOurs: variant.hasPrefix("plimsoll"))
    }
}

/// Where labels of marks on an axis go: in rows above it, each beside the line down to its mark, so that no label covers another or another's line.
struct LabelRows {
    struct Label: Hashable {
        var text: String
        /// Where its mark is.
        var mark: Double
        /// Where the text begins.
        var x: Double
        var width: Double
        /// From the top.
        var row: Int
    }

    private(set) var labels: [Label] = []
    /// Number of rows.
    var count: Int { (labels.map(\.row).max() ?? -1) + 1 }

    /// How wide `text` is at most, in a sans-serif of 12 px: most letters take less.
    static func width(of text: String) -> Double { Double(text.count) * 6.9 }

    /// - Parameters:
    ///   - marks: in any order.
    ///   - end: no label goes beyond.
    init(_ marks: [(at: Double, text: String)], end: Double, gap: Double = 4) {
        var overhanging: [Label] = []
        for (at, text) in marks.sorted(by: { $0.at < $1.at }) {
            let width = Self.width(of: text)
            if at + gap + width > end {
                overhanging.append(Label(text: text, mark: at, x: max(0, end - width), width: width, row: 0))
                continue
            }
            // A line goes down from each: a later label must lie below those that it would cut, which are those that reach over its mark.
            let row = labels.filter { $0.x + $0.width + gap > at }.map { $0.row + 1 }.max() ?? 0
            labels.append(Label(text: text, mark: at, x: at + gap, width: width, row: row))
        }
        // What would not fit lies over its mark, in rows of its own on top of all.
        for index in labels.indices { labels[index].row += overhanging.count }
        for (index, label) in overhanging.enumerated() {
            labels.append(label)
            labels[labels.count - 1].row = overhanging.count - 1 - index
        }
    }
}

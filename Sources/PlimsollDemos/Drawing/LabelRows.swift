import Plimsoll

/// Positions of labels of marks on an axis, in rows above the axis. Each label stands beside the line down to its
/// mark. No label covers another, or the line of another.
struct LabelRows {
    struct Label: Hashable {
        var text: String
        /// Position of the mark.
        var mark: Double
        /// Start of the text.
        var x: Double
        var width: Double
        /// Row, counted from the top.
        var row: Int
    }

    private(set) var labels: [Label] = []
    /// Number of rows.
    var count: Int { (labels.map(\.row).max() ?? -1) + 1 }

    /// Returns the largest width of `text` in a sans-serif of 12 px: most letters take less.
    static func width(of text: String) -> Double { Double(text.count) * 6.9 }

    /// Lays out labels.
    ///
    /// - Parameters:
    ///   - marks: positions and texts, in any order.
    ///   - end: right edge of all labels.
    init(_ marks: [(at: Double, text: String)], end: Double, gap: Double = 4) {
        var overhanging: [Label] = []
        for (at, text) in marks.sorted(by: { $0.at < $1.at }) {
            let width = Self.width(of: text)
            if at + gap + width > end {
                overhanging.append(Label(text: text, mark: at, x: max(0, end - width), width: width, row: 0))
                continue
            }
            // A line goes down from each label. A later label must lie below the labels that reach over its mark:
            // their row would cut the line.
            let row = labels.filter { $0.x + $0.width + gap > at }.map { $0.row + 1 }.max() ?? 0
            labels.append(Label(text: text, mark: at, x: at + gap, width: width, row: row))
        }
        // A label that would not fit lies over its mark, in a separate row above all others.
        for index in labels.indices { labels[index].row += overhanging.count }
        for (index, label) in overhanging.enumerated() {
            labels.append(label)
            labels[labels.count - 1].row = overhanging.count - 1 - index
        }
    }
}

/// A time axis from left to right, shared by charts with several rows.
struct TimeAxis {
    /// Length of the axis in seconds, from zero.
    let seconds: Double
    let left: Double
    let right: Double

    /// Returns the x coordinate of a time, clamped to the axis.
    func x(_ at: Duration) -> Double { left + min(1, max(0, at.inSeconds / seconds)) * (right - left) }

    /// Draws the line at `y` with round numbers below. Needs 18 px below `y`, with a caption 34 px.
    func draw(_ y: Double, caption: String? = nil, _ svg: inout SVG) {
        svg.line((left, y), (right, y), "axis")
        let step = Self.roundStep(seconds / 16)
        var time = 0.0
        while time <= seconds {
            svg.line((x(.seconds(time)), y), (x(.seconds(time)), y + 4), "axis")
            svg.text(Text.number(time), x: x(.seconds(time)), y: y + 18, "minor", anchor: .middle)
            time += step
        }
        if let caption { svg.text(caption, x: (left + right) / 2, y: y + 34, "minor", anchor: .middle) }
    }

    /// Returns 1, 2 or 5 times a power of ten, at least `value`.
    static func roundStep(_ value: Double) -> Double {
        guard value > 0, value.isFinite else { return 1 }
        var power = 1.0
        while power < value { power *= 10 }
        while power / 10 >= value { power /= 10 }
        return [power / 5, power / 2].first { $0 >= value } ?? power
    }
}

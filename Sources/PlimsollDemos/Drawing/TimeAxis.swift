import Plimsoll

/// A time axis from left to right, shared by charts with several lanes.
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

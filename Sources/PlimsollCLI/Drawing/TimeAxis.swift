import Plimsoll

/// Seconds from left to right, as charts of several lanes share them.
struct TimeAxis {
    /// What is shown, from zero.
    let seconds: Double
    let left: Double
    let right: Double

    /// Where that time is; what lies outside is put at the nearer end.
    func x(_ at: Duration) -> Double { left + min(1, max(0, at.inSeconds / seconds)) * (right - left) }

    /// The line at `y` with round numbers below; needs 18 px below `y`, with a caption 34 px.
    func draw(_ y: Double, caption: String? = nil, _ svg: inout SVG) {
        svg.line((left, y), (right, y), "axis")
        let step = DemoChart.roundStep(seconds / 16)
        var time = 0.0
        while time <= seconds {
            svg.line((x(.seconds(time)), y), (x(.seconds(time)), y + 4), "axis")
            svg.text(Text.number(time), x: x(.seconds(time)), y: y + 18, "minor", anchor: .middle)
            time += step
        }
        if let caption { svg.text(caption, x: (left + right) / 2, y: y + 34, "minor", anchor: .middle) }
    }
}

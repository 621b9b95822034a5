import Foundation

/// A drawing of resident memory over time, as SVG.
struct RunDrawing {
    var curves: [(name: String, curve: [(seconds: Double, mebibytes: Int)])]
    private let width = 720.0, height = 300.0, left = 60.0, bottom = 40.0
    private let colors = ["#c0392b", "#2471a3", "#1e8449"]

    var text: String {
        let longest = max(0.1, curves.compactMap { $0.curve.last?.seconds }.max() ?? 1)
        func x(_ seconds: Double) -> Double { left + seconds / longest * (width - left - 20) }
        func y(_ mebibytes: Double) -> Double { height - bottom - mebibytes / 288 * (height - bottom - 20) }
        var lines = [
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 \(Int(width)) \(Int(height))\" font-family=\"sans-serif\" font-size=\"12\">",
            "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>",
            "<title>Resident memory of a service with one request that takes 1 GiB</title>",
        ]
        for line in [0, 64, 128, 192, 256] {
            let at = y(Double(line))
            lines.append(
                "<line x1=\"\(left)\" x2=\"\(width - 20)\" y1=\"\(at)\" y2=\"\(at)\" stroke=\"\(line == 256 ? "#888" : "#ddd")\"/>"
            )
            lines.append("<text x=\"\(left - 8)\" y=\"\(at + 4)\" text-anchor=\"end\">\(line) MiB</text>")
        }
        for (index, (name, curve)) in curves.enumerated() {
            let points = curve.filter { $0.mebibytes > 0 }
                .map { String(format: "%.1f,%.1f", x($0.seconds), y(Double($0.mebibytes))) }.joined(separator: " ")
            let color = colors[index % colors.count]
            lines.append("<polyline fill=\"none\" stroke=\"\(color)\" stroke-width=\"1.5\" points=\"\(points)\"/>")
            lines.append("<text x=\"\(left + 10)\" y=\"\(34 + 16 * index)\" fill=\"\(color)\">\(label(name))</text>")
        }
        lines.append(
            String(
                format: "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%.1f s</text>", width - 20, height - 16,
                longest))
        return lines.joined(separator: "\n") + "\n</svg>\n"
    }

    private func label(_ name: String) -> String {
        switch name {
        case Budgets.limit.rawValue: "a limit of 32 MiB for each request: 413"
        case Budgets.largest.rawValue: "the largest request is cancelled at critical: 503"
        default: "without budgets: killed at the limit of 256 MiB"
        }
    }
}

import Plimsoll

/// Human-readable numbers and columns, without Foundation's formatters.
package enum Text {
    /// Formats with at most one decimal: `4.2`, `20`.
    package static func number(_ value: Double) -> String { number(value, decimals: 1) }

    package static func number(_ value: Double, decimals: Int) -> String {
        guard value.isFinite, abs(value) < 1e15 else { return "\(value)" }
        var scale = 1
        for _ in 0..<decimals { scale *= 10 }
        let scaled = Int((abs(value) * Double(scale)).rounded())
        let sign = value < 0 && scaled > 0 ? "-" : ""
        let fraction = scaled % scale
        if fraction == 0 { return "\(sign)\(scaled / scale)" }
        var digits = "\(fraction)"
        while digits.count < decimals { digits = "0" + digits }
        while digits.hasSuffix("0") { digits.removeLast() }
        return "\(sign)\(scaled / scale).\(digits)"
    }

    /// Formats with exactly `decimals` decimals: `4.20`.
    package static func fixed(_ value: Double, decimals: Int) -> String {
        let text = number(value, decimals: decimals)
        guard decimals > 0, let last = text.last, last.isNumber else { return text }
        let fraction = text.split(separator: ".").dropFirst().first.map(\.count) ?? 0
        return text + (fraction == 0 ? "." : "") + String(repeating: "0", count: decimals - fraction)
    }

    /// Formats as whole mebibytes.
    static func mebibytes(_ size: ByteCount) -> String { "\(Int((Double(size.bytes) / 1_048_576).rounded()))" }

    package static func left(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }
    package static func right(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(0, width - text.count)) + text
    }

    /// Returns `rows` under `header`, with columns two blanks apart. All but the first column are right-aligned if
    /// `numeric`.
    package static func table(_ header: [String], _ rows: [[String]], numeric: Bool = false) -> String {
        let all = [header] + rows
        let widths = header.indices.map { column in all.map { column < $0.count ? $0[column].count : 0 }.max() ?? 0 }
        return all.map { row in
            let cells = row.enumerated().map { column, cell in
                numeric && column > 0
                    ? right(cell, widths[column]) : left(cell, column == row.count - 1 ? 0 : widths[column])
            }
            return cells.joined(separator: "  ")
        }.joined(separator: "\n")
    }
}

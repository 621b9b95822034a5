import Foundation
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

/// A bar in a terminal: the used part of a limit, with marks where a level begins.
package enum Bar {
    /// Returns the bar as text.
    ///
    /// - Parameters:
    ///   - share: filled part, clamped to `0...1`.
    ///   - marks: positions in `0...1`, each with the character drawn there if the bar is not filled.
    package static func draw(_ share: Double, width: Int, marks: [(at: Double, character: Character)] = []) -> String {
        let filled = Int((min(1, max(0, share.isFinite ? share : 0)) * Double(width)).rounded())
        var cells = (0..<width).map { $0 < filled ? Character("█") : Character("·") }
        for mark in marks where (0...1).contains(mark.at) {
            let cell = min(width - 1, Int(mark.at * Double(width)))
            if cell >= filled { cells[cell] = mark.character }
        }
        return String(cells)
    }
}

/// One JSON object a line, keys in a fixed order.
package enum JSONLine {
    package static func encode(_ value: some Encodable) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Records hold strings, integers and finite numbers only, which always encode.
        guard let data = try? encoder.encode(value) else { preconditionFailure("\(type(of: value)) does not encode") }
        return String(decoding: data, as: UTF8.self)
    }

    package static func decode<Value: Decodable>(_ type: Value.Type, from line: some StringProtocol) throws -> Value {
        try JSONDecoder().decode(type, from: Data(line.utf8))
    }
}

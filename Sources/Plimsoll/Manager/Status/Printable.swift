/// Returns at most `most` characters of `text`, with each control character, which a terminal or log might obey,
/// replaced by U+FFFD.
package func printable(_ text: some StringProtocol, atMost most: Int = .max) -> String {
    String(
        text.prefix(most).unicodeScalars.map {
            $0.value < 32 || (0x7f..<0xa0).contains($0.value) ? "\u{FFFD}" : Character($0)
        })
}

/// Returns `text` with the characters that have a meaning in HTML and SVG replaced.
package func escaped(_ text: String) -> String {
    text.reduce(into: "") { result, character in
        switch character {
        case "&": result += "&amp;"
        case "<": result += "&lt;"
        case ">": result += "&gt;"
        case "\"": result += "&quot;"
        case "'": result += "&#39;"
        default: result.append(character)
        }
    }
}

/// Returns the number of insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
package func editDistance(_ left: [UInt8], _ right: [UInt8]) -> Int {
    var (before, last) = ([Int](), Array(0...right.count))
    for (row, letter) in left.enumerated() {
        var line = [row + 1]
        for (column, other) in right.enumerated() {
            var cost = min(line[column] + 1, last[column + 1] + 1, last[column] + (letter == other ? 0 : 1))
            if row > 0, column > 0, letter == right[column - 1], left[row - 1] == other {
                cost = min(cost, before[column - 1] + 1)
            }
            line.append(cost)
        }
        (before, last) = (last, line)
    }
    return last[right.count]
}

import Plimsoll

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

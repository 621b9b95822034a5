/// Returns at most `most` characters of `text`, with each control character, which a terminal or log might obey,
/// replaced by U+FFFD.
package func printable(_ text: some StringProtocol, atMost most: Int = .max) -> String {
    String(
        text.prefix(most).unicodeScalars.map {
            $0.value < 32 || (0x7f..<0xa0).contains($0.value) ? "\u{FFFD}" : Character($0)
        })
}

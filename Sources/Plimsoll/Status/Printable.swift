/// At most so many characters of `text`, what terminals and logs obey (control characters) made visible and harmless.
package func printable(_ text: some StringProtocol, atMost most: Int = .max) -> String {
    String(text.prefix(most).unicodeScalars.map { $0.value < 32 || (0x7f..<0xa0).contains($0.value) ? "\u{FFFD}" : Character($0) })
}

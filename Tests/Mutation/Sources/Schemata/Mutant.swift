/// One small change of the source, which a test should notice.
public struct Mutant: Sendable, Hashable, Codable {
    /// The usual operators of mutation testing (Offutt et al., "An experimental determination of sufficient mutant
    /// operators", TOSEM 1996), as far as they suit Swift.
    public enum Kind: String, Sendable, Codable, CaseIterable {
        /// `<` becomes `<=`.
        case boundary
        /// `<` becomes `>=`, `==` becomes `!=`.
        case comparison
        /// `&&` becomes `||`.
        case logic
        /// `+` becomes `-`, `min` becomes `max`.
        case arithmetic
        /// A number becomes the next one, `true` becomes `false`.
        case constant
        /// A condition is negated.
        case condition
        /// A call or an assignment is left out.
        case statement
    }

    /// Number that switches the mutant on; from 1.
    public let id: Int
    public let kind: Kind
    /// Path of the file, from the root of the repository.
    public let file: String
    /// Line of the change, from 1.
    public let line: Int
    /// Position of the change in `text`, in bytes from 1.
    public let column: Int
    /// The changed code, and the code in its place.
    public let original, replacement: String
    /// The whole line in the source, without spaces at its ends.
    public let text: String
    /// Number of equal changes in equal lines further up in the file; `nil` for none, as in records without the key.
    public let repetition: Int?

    /// Identifies the change as long as the changed line stays the same, at any place of the line in the file. The
    /// column distinguishes equal changes of one line. Changes of equal lines have one key and differ in `repetition`.
    public var key: String { "\(file) | \(text) | \(column): \(change)" }
    public var change: String { "\(original) -> \(replacement)" }
}

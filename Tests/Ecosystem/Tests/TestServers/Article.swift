import Foundation

/// The snippets of `docs/Adapters.md`, which stand word for word in tests.
public enum Article {
    /// Returns the lines of code in a section of the article that are not in the source `file`, in order; `nil` if the
    /// section has no code.
    public static func missingLines(of section: String, in file: String) throws -> [String]? {
        let source = URL(fileURLWithPath: file)
        let root = (0..<5).reduce(source) { url, _ in url.deletingLastPathComponent() }
        let text = try String(contentsOf: root.appendingPathComponent("docs/Adapters.md"), encoding: .utf8)
        guard let part = text.components(separatedBy: "\n## ").first(where: { $0.hasPrefix(section + "\n") }) else { return nil }
        let code = part.components(separatedBy: "```swift\n").dropFirst().flatMap { $0.components(separatedBy: "```")[0].split(separator: "\n") }
        var lines = try String(contentsOf: source, encoding: .utf8).split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }[...]
        var missing: [String] = []
        for line in code.map({ $0.trimmingCharacters(in: .whitespaces) }) {
            if let index = lines.firstIndex(of: line) { lines = lines[(index + 1)...] } else { missing.append(line) }
        }
        return code.isEmpty ? nil : missing
    }
}

import Yams  // of the trait "Supervisor"

/// A composer of YAML nodes with their positions. Rejects the dangerous features of YAML. These are tags, and aliases,
/// by which a small text can expand to an enormous one.
enum UnitsYAML {
    /// The maximum number of words in a text that may be aliases. A text with more is rejected unparsed, since key
    /// comparison follows aliases. Sixteen aliases expand to less than 3⁶ times their text.
    private static let mostAliases = 16
    /// The maximum number of passes that neutralise a duplicate key and parse again, to find further problems.
    private static let mostDuplicates = 32

    /// Returns the root node of the single document in `text`, with the problems that did not prevent parsing.
    static func compose(_ text: String, file: String) throws(UnitsFileError) -> (
        root: Node, problems: [UnitsFileError.Problem]
    ) {
        guard aliasCount(text.utf8) <= mostAliases else {
            throw UnitsFileError(
                file,
                "more than \(mostAliases) words begin with *, which makes aliases in YAML; aliases are not allowed; write the value in full"
            )
        }
        var text = text
        var duplicates: [UnitsFileError.Problem] = []
        while true {
            do {
                // Nodes keep their anchors only while the parser lives.
                let parser = try Parser(yaml: text, resolver: .basic, encoding: .utf8)
                guard let root = try parser.singleRoot() else {
                    throw UnitsFileError(file, "the file is empty; write \"version: 1\" and \"units:\"")
                }
                let problems = withExtendedLifetime(parser) { forbidden(in: root) }
                // Nodes with anchors may expand to far more than their text, so they are not read.
                if !problems.isEmpty { throw UnitsFileError(file, duplicates + problems) }
                return (root, duplicates)
            } catch let error as UnitsFileError {
                throw error
            } catch YamlError.duplicatedKeysInMapping(let keys, let context) {
                let first = context.mark
                let key = keys.first ?? ""
                let again =
                    duplicates.count < mostDuplicates
                    ? Duplicate(of: key, at: first, in: text, number: duplicates.count) : nil
                let rest = keys.count > 1 && again == nil ? ", as are \(keys.dropFirst().joined(separator: ", "))" : ""
                let message =
                    "the key \"\(key.prefix(64))\" occurs twice, first in line \(first.line)\(rest); once is allowed"
                duplicates.append(.init(line: again?.line ?? first.line, column: first.column, message: message))
                guard let again else { throw UnitsFileError(file, duplicates) }
                text = again.mended
            } catch {
                throw UnitsFileError(file, duplicates + [problem(error)])
            }
        }
    }

    private static func problem(_ error: any Error) -> UnitsFileError.Problem {
        switch error {
        case YamlError.scanner(let context, let problem, let mark, _),
            YamlError.parser(let context, let problem, let mark, _),
            YamlError.composer(let context, let problem, let mark, _):
            .init(
                line: mark.line, column: mark.column,
                message: "the file is not YAML: \(context.map { "\($0.text), " } ?? "")\(problem)")
        case YamlError.reader(let problem, _, _, _):
            .init(line: 0, column: 0, message: "the file is not YAML text: \(problem)")
        default: .init(line: 0, column: 0, message: "cannot read the file as YAML: \(error)")
        }
    }

    /// Returns the anchors and tags in `node` and below. Does not descend into nodes with an anchor, so the traversal
    /// stays short with any number of aliases.
    private static func forbidden(in node: Node) -> [UnitsFileError.Problem] {
        let (anchor, tag): (Anchor?, Tag) =
            switch node {
            case .scalar(let scalar): (scalar.anchor, scalar.tag)
            case .mapping(let mapping): (mapping.anchor, mapping.tag)
            case .sequence(let sequence): (sequence.anchor, sequence.tag)
            case .alias(let alias): (alias.anchor, alias.tag)
            }
        func problem(_ message: String) -> [UnitsFileError.Problem] {
            [.init(line: node.mark?.line ?? 0, column: node.mark?.column ?? 0, message: message)]
        }
        if let anchor {
            return problem(
                "\"&\(anchor)\" is an anchor; anchors and aliases are not allowed; write the value in full, or quote text"
            )
        }
        let known = ["", Tag.Name.str.rawValue, Tag.Name.map.rawValue, Tag.Name.seq.rawValue]
        if !known.contains(tag.rawValue) { return problem("the tag \(tag.rawValue) is not allowed") }
        switch node {
        case .mapping(let mapping): return mapping.flatMap { forbidden(in: $0.key) + forbidden(in: $0.value) }
        case .sequence(let sequence): return sequence.flatMap { forbidden(in: $0) }
        case .scalar, .alias: return []
        }
    }

    /// Counts `*` at places where an alias may begin, before a letter, digit, `-` or `_`. Includes quoted text: to
    /// exclude quotes would take a parser.
    private static func aliasCount(_ text: String.UTF8View) -> Int {
        var count = 0
        var before = UInt8(ascii: " "), isStar = false
        for byte in text {
            let isWord =
                UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte | 0x20 || UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte
                || byte == UInt8(ascii: "-")
            if isStar, isWord || byte == UInt8(ascii: "_") { count += 1 }
            isStar = byte == UInt8(ascii: "*") && (before <= 0x20 || before >= 0x80 || ",:[]{}?-".utf8.contains(before))
            before = byte
        }
        return count
    }
}

/// The second of two equal keys in a mapping with one key per line.
struct Duplicate {
    let line: Int
    /// The text with the duplicate renamed to a unique key of equal length, so all other positions stay unchanged.
    let mended: String

    /// Returns true if `key` is a placeholder for a duplicate.
    static func isPlaceholder(_ key: String) -> Bool {
        key.unicodeScalars.first.map { 0xe000...0xe0ff ~= $0.value } ?? false
    }

    /// Finds the duplicate; `nil` if not found, for example in a mapping on one line.
    init?(of key: String, at first: Mark, in text: String, number: Int) {
        var lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        guard first.line <= lines.count, !key.isEmpty, key.unicodeScalars.allSatisfy({ $0.isASCII }) else { return nil }
        let indent = first.column - 1
        for index in lines.indices.dropFirst(first.line) {
            let line = lines[index]
            let depth = line.utf8.prefix { $0 == UInt8(ascii: " ") }.count
            let content = line.dropFirst(depth)
            if content.isEmpty || content.hasPrefix("#") { continue }
            if depth < indent { return nil }
            let after = content.dropFirst(key.count).drop { $0 == " " }
            guard depth == indent, content.hasPrefix(key), after.hasPrefix(":") else { continue }
            self.line = index + 1
            // Private-use characters, which no real key has. The length is unchanged, so columns stay valid.
            let placeholder =
                String(Character(Unicode.Scalar(UInt16(0xe000 + number))!))
                + String(repeating: "\u{f8ff}", count: key.count - 1)
            lines[index] = line.prefix(depth) + placeholder + content.dropFirst(key.count)
            mended = lines.joined(separator: "\n")
            return
        }
        return nil
    }
}

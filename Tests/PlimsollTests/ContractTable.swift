/// A test, named by its suite and its function.
struct NamedTest: Hashable, Comparable, CustomStringConvertible {
    var suite: String
    var name: String

    /// The ids at the start of the name: `C31` and `T4` of `C31 T4 a task ends once`.
    var ids: [String] { name.split(separator: " ").prefix(while: Self.isID).map(String.init) }

    /// Ids later in the name, where they do not count.
    var misplacedIDs: [String] {
        name.split(separator: " ").drop(while: Self.isID).map { $0.filter { !",.:;()".contains($0) } }.filter { Self.isID($0[...]) }
    }

    var description: String { "\(suite).\(name)" }

    static func < (left: NamedTest, right: NamedTest) -> Bool { (left.suite, left.name) < (right.suite, right.name) }

    static func isID(_ word: Substring) -> Bool {
        word.count > 1 && "CTK".contains(word.first!) && word.dropFirst().allSatisfy { $0.isASCII && $0.isNumber }
    }

    /// Returns the tests of a source that are named by a sentence, and on request the other functions.
    static func all(in source: String, withPlainNames: Bool = false) -> [NamedTest] {
        var suite = "", tests: [NamedTest] = []
        for line in source.split(separator: "\n") {
            if let type = typeDeclared(by: line) { suite = type }
            let parts = line.split(separator: "`", omittingEmptySubsequences: false)
            if parts.count > 2, parts[0].hasSuffix("func "), !parts[0].contains("//") {
                tests.append(NamedTest(suite: suite, name: String(parts[1])))
            } else if withPlainNames, let name = functionDeclared(by: line) {
                tests.append(NamedTest(suite: suite, name: name))
            }
        }
        return tests
    }

    /// Returns the function that a line declares under a plain name.
    private static func functionDeclared(by line: Substring) -> String? {
        let words = line.split(separator: " ")
        guard !line.contains("//"), let keyword = words.firstIndex(of: "func") else { return nil }
        return words.dropFirst(keyword + 1).first.map { String($0.prefix { $0.isLetter || $0.isNumber || $0 == "_" }) }
    }

    /// Returns the type that a line at the margin declares or extends.
    private static func typeDeclared(by line: Substring) -> String? {
        guard let first = line.first, first != " ", !line.hasPrefix("//") else { return nil }
        let words = line.split(separator: " ")
        guard let keyword = words.firstIndex(where: { ["struct", "class", "actor", "enum", "extension"].contains($0) }) else { return nil }
        return words.dropFirst(keyword + 1).first.map { String($0.prefix { $0.isLetter || $0.isNumber || $0 == "_" }) }
    }
}

/// The tables of docs/Contracts.md: the ids and promises stand there, the last column follows from the tests.
struct ContractTable {
    /// The lines of the document.
    var lines: [String]

    init(_ text: String) { lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init) }

    /// All ids, in order.
    static let ids = [("C", 98), ("T", 40), ("K", 44)].flatMap { kind, count in (1...count).map { "\(kind)\($0)" } }

    /// Promises that only another process can keep, and that no test of that process holds yet.
    static let supervised: Set = ["C13"]
    /// Promises without an equivalent on a server.
    static let withoutEquivalent: Set = ["C47", "C68", "C72", "C92"]

    /// Rows that must have a test: every promise and every mistake.
    static var required: Set<String> { Set(ids).subtracting(withoutEquivalent) }

    /// The ids of the rows, in their order.
    var ids: [String] { lines.compactMap { Self.cells($0)?.first }.filter { NamedTest.isID($0[...]) } }

    /// Returns the lines of the document that follow from the tests' names.
    func written(for tests: [NamedTest]) -> [String] {
        let holding = Self.holding(tests)
        return lines.map { line in
            guard let cells = Self.cells(line), let first = cells.first else { return line }
            if first.contains(" to ") { return "| \(first) | \(Self.counts(of: first, holding)) |" }
            guard NamedTest.isID(first[...]), cells.count == 3 else { return line }
            return "| \(first) | \(cells[1]) | \(Self.tests(for: first, holding)) |"
        }
    }

    /// Returns the tests of each id.
    static func holding(_ tests: [NamedTest]) -> [String: [NamedTest]] {
        var holding: [String: [NamedTest]] = [:]
        for test in tests.sorted() { for id in test.ids { holding[id, default: []].append(test) } }
        return holding
    }

    private static func tests(for id: String, _ holding: [String: [NamedTest]]) -> String {
        if let tests = holding[id] {
            return tests.map { $0.description.replacing("|", with: "\\|").replacing("<", with: "&lt;") }.joined(separator: "<br>")
        }
        if withoutEquivalent.contains(id) { return "none" }
        return supervised.contains(id) ? "with the supervisor" : "no test names it"
    }

    /// Returns the row of counts for ids of the kind that `range` begins with.
    private static func counts(of range: String, _ holding: [String: [NamedTest]]) -> String {
        let all = ids.filter { $0.first == range.first }
        let untested = all.filter { holding[$0] == nil }
        let later = untested.filter(supervised.contains).count, never = untested.filter(withoutEquivalent.contains).count
        let numbers = [all.count, all.count - untested.count, later, never, untested.count - later - never]
        return numbers.map(String.init).joined(separator: " | ")
    }

    /// Returns the texts between the bars of a table's row. A bar after a backslash does not separate.
    static func cells(_ line: String) -> [String]? {
        guard line.hasPrefix("|"), line.hasSuffix("|"), line.count > 1 else { return nil }
        var cells = [""], isEscaped = false
        for character in line.dropFirst().dropLast() {
            if character == "|", !isEscaped { cells.append("") } else { cells[cells.count - 1].append(character) }
            isEscaped = character == "\\" && !isEscaped
        }
        return cells.map { cell in String(cell.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed()) }
    }
}

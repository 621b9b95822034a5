import Foundation
import TestSupport
import Testing

/// The table in docs/Review.md, whose rows name the tests that hold them. Each named test must exist.
@Suite(.needs(TidyTests.hasSources, "the sources are not at hand")) struct ReviewTests {
    private static let file = TidyTests.root.appendingPathComponent("docs/Review.md")

    @Test func `every test named in the review's table exists`() throws {
        let tests = TestDirectory(TidyTests.sources("Tests"))
        let mentions = ReviewTable.mentions(in: try String(contentsOf: Self.file, encoding: .utf8))
        #expect(mentions.count { $0.name != nil } > 200, "the names were not found")
        for mention in mentions where !tests.has(mention) {
            Issue.record("docs/Review.md:\(mention.line) names \(mention), and the sources have no such test: write the name that it has now")
        }
    }

    @Test func `names are found in rows, and an ellipsis stands for omitted text`() {
        let tick = "`"
        let table = """
            Prose with SomeTests and \(tick)no test of any\(tick).
            | row | defect | mended by | held by | seen to fail |
            | a | OldTests | \(tick)while it runs\(tick) | SomeTests \(tick)C1 a…\(tick), \(tick)one\(tick); MoreTests.\(tick)two\(tick) | yes: \(tick)three four\(tick) |
            | b | - | - | \(tick)make test\(tick), \(tick)FileTests\(tick) | - |
            """
        let mentions = ReviewTable.mentions(in: table)
        #expect(
            mentions.map(\.description) == [
                "OldTests", "SomeTests", "SomeTests.C1 a…", "MoreTests", "MoreTests.two", "three four", "FileTests",
            ])
        #expect(mentions.map(\.line) == [3, 3, 3, 3, 3, 3, 4])

        let source = "struct SomeTests {\n    @Test func \(tick)C1 a test\(tick)() {\nextension MoreTests {\n    @Test func two() {"
        let tests = TestDirectory([("/Tests/AllTests/FileTests.swift", source)])
        #expect(mentions.filter { !tests.has($0) }.map(\.description) == ["OldTests", "three four"])
        #expect(tests.has(.init(line: 1, suite: "FileTests", name: "C1 …")) && tests.has(.init(line: 1, suite: "AllTests")))
        #expect(!tests.has(.init(line: 1, suite: "MoreTests", name: "C1 …")))

        #expect(ReviewTable.Mention.matches("a…c", "a b c") && ReviewTable.Mention.matches("… b…", "a b c"))
        #expect(!ReviewTable.Mention.matches("a b", "a b c") && !ReviewTable.Mention.matches("b…", "a b c"))
        #expect(!ReviewTable.Mention.matches("…b", "a b c") && !ReviewTable.Mention.matches("a b…b c", "a b c"))
    }
}

/// The rows of docs/Review.md.
enum ReviewTable {
    /// A suite, or a test of that suite, that a row names.
    struct Mention: CustomStringConvertible {
        /// The line number, counted from 1.
        var line: Int
        /// A suite, or the file or folder that has the tests.
        var suite: String?
        /// The name as written, with `…` for omitted text.
        var name: String?

        var description: String { [suite, name].compactMap { $0 }.joined(separator: ".") }

        /// Returns true if `name` matches `pattern`.
        static func matches(_ pattern: String, _ name: String) -> Bool { NamePattern(pattern).matches(name) }
    }

    /// A name in which `…` stands for omitted text. The pattern is split once, because a row's name is compared with
    /// thousands of tests' names.
    struct NamePattern {
        private let parts: [String]

        init(_ pattern: String) {
            parts = pattern.components(separatedBy: "…").map { $0.trimmingCharacters(in: .whitespaces) }
        }

        func matches(_ name: String) -> Bool {
            guard let first = parts.first, let last = parts.last, parts.count > 1 else { return parts.first == name }
            guard name.hasPrefix(first) else { return false }
            var rest = name.dropFirst(first.count)
            for part in parts.dropFirst().dropLast() where !part.isEmpty {
                guard let found = rest.range(of: part) else { return false }
                rest = rest[found.upperBound...]
            }
            return rest.hasSuffix(last)
        }
    }

    /// The beginnings of commands, which stand between backticks as well.
    private static let commands = ["make ", "plimsoll ", "swift "]

    /// Returns the suites that the rows name, and the tests that their last two columns name between backticks.
    static func mentions(in text: String) -> [Mention] {
        var mentions: [Mention] = []
        for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() where line.hasPrefix("|") {
            for (column, cell) in String(line).components(separatedBy: " | ").enumerated() {
                mentions += self.mentions(in: cell, line: index + 1, hasNames: column > 2)
            }
        }
        return mentions
    }

    private static func mentions(in cell: String, line: Int, hasNames: Bool) -> [Mention] {
        var mentions: [Mention] = [], suite: String?, isDirect = false
        for (index, part) in cell.components(separatedBy: "`").enumerated() {
            let suites = part.split { !$0.isLetter && !$0.isNumber && $0 != "_" }.map(String.init).filter(isSuite)
            if index.isMultiple(of: 2) || !part.contains(" ") && !suites.isEmpty {
                mentions += suites.map { Mention(line: line, suite: $0) }
                suite = suites.last ?? suite
                isDirect = suites.last.map { part.trimmingCharacters(in: [" ", "."]).hasSuffix($0) } ?? false
            } else if hasNames, part.contains(" ") || isDirect, !commands.contains(where: part.hasPrefix) {
                mentions.append(Mention(line: line, suite: suite, name: part))
            }
        }
        return mentions
    }

    private static func isSuite(_ word: String) -> Bool { word.hasSuffix("Tests") && word.count > 5 && word.first!.isUppercase }
}

/// The tests by their suites, and by the files and folders that they are in.
struct TestDirectory {
    private var names: [String: Set<String>] = [:]

    init(_ sources: [(path: String, text: String)]) {
        for (path, text) in sources {
            let places = path.split(separator: "/").map { String($0.prefix { $0 != "." }) }
            let tests = NamedTest.all(in: text, withPlainNames: true)
            for place in places { names[place, default: []].formUnion(tests.map(\.name)) }
            for test in tests { names[test.suite, default: []].insert(test.name) }
        }
    }

    func has(_ mention: ReviewTable.Mention) -> Bool {
        let candidates = mention.suite.map { names[$0].map { [$0] } ?? [] } ?? Array(names.values)
        guard let name = mention.name else { return !candidates.isEmpty }
        let pattern = ReviewTable.NamePattern(name)
        return candidates.contains { $0.contains(where: pattern.matches) }
    }
}

import Plimsoll

/// The error for a rejected units file, with all problems in the order of the file.
public struct UnitsFileError: Error, Sendable, Hashable {
    package struct Problem: Sendable, Hashable {
        /// Line number from 1; 0 if the problem concerns the file as a whole.
        package var line: Int
        package var column: Int
        package var unit: String?
        package var key: String?
        /// Description of the problem and of the permitted values.
        package var message: String
    }

    /// The name of the file, as given by the caller.
    public var file: String
    package var problems: [Problem]
    /// Number of problems left out of `messages`.
    public var omitted = 0

    /// The maximum number of reported problems, more than a person fixes in one pass.
    public static let mostProblems = 100

    init(_ file: String, _ problems: [Problem]) {
        self.file = file
        let sorted = problems.enumerated().sorted {
            ($0.element.line, $0.element.column, $0.offset) < ($1.element.line, $1.element.column, $1.offset)
        }
        self.problems = sorted.prefix(Self.mostProblems).map(\.element)
        omitted = problems.count - self.problems.count
    }

    init(_ file: String, _ message: String, line: Int = 0, column: Int = 0) {
        self.init(file, [Problem(line: line, column: column, message: message)])
    }
}

extension UnitsFileError: CustomStringConvertible {
    /// One line for each problem, at most `mostProblems`: `UNITS.yaml:7:5: unit "web": key "importance": ...`.
    public var messages: [String] {
        problems.map { problem in
            let place = problem.line > 0 ? "\(file):\(problem.line):\(problem.column)" : file
            return [place, problem.unit.map { "unit \"\($0)\"" }, problem.key.map { "key \"\($0)\"" }, problem.message]
                .compactMap(\.self).joined(
                    separator: ": ")
        }
    }

    /// The messages, and the number of problems left out.
    public var description: String {
        (messages + (omitted > 0 ? ["\(file): \(omitted) more"] : [])).joined(separator: "\n")
    }
}

/// Suggests the intended word for a misspelling.
enum Spelling {
    /// Returns `; did you mean "x"?` if one of `words` is close enough, otherwise an empty string.
    static func suggestion(for word: String, among words: some Sequence<String>) -> String {
        nearest(to: word, among: words).map { "; did you mean \"\($0)\"?" } ?? ""
    }

    /// Returns the word with the smallest edit distance. The maximum distance is a third of the letters, but at least
    /// two.
    static func nearest(to word: String, among words: some Sequence<String>) -> String? {
        let typed = plain(word)
        guard typed.count <= 64 else { return nil }
        let most = min(max(2, typed.count / 3), typed.count - 1)
        let best = words.map { (word: $0, distance: editDistance(typed, plain($0))) }.min {
            ($0.distance, $0.word) < ($1.distance, $1.word)
        }
        guard let best, best.distance <= most else { return nil }
        return best.word
    }

    /// Returns the letters and digits in lower case, so `keep_alive`, `keep-alive` and `keepAlive` compare equal.
    private static func plain(_ word: String) -> [UInt8] {
        word.lowercased().utf8.filter { $0 != UInt8(ascii: "-") && $0 != UInt8(ascii: "_") }
    }
}

/// The error for a request that the supervisor can't fulfil.
public struct SupervisorError: Error, Sendable, Hashable, CustomStringConvertible {
    public var description: String

    init(_ description: String) { self.description = description }
}

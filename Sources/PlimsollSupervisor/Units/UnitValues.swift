import Glibc
import Plimsoll

/// Parsers for the kinds of values in a units file.
enum UnitValues {
    /// Parses digits with at most one decimal point in between; `nil` for any other text.
    static func number(_ text: String) -> Double? {
        guard let first = text.utf8.first, isDigit(first),
            text.utf8.allSatisfy({ isDigit($0) || $0 == UInt8(ascii: ".") })
        else { return nil }
        return Double(text)
    }

    /// Parses a whole number without a sign.
    static func integer(_ text: String) -> Int? {
        guard !text.isEmpty, text.utf8.allSatisfy(isDigit) else { return nil }
        return Int(text)
    }

    /// Returns the numeric ID of a user; `nil` if there is no user of that name.
    static func user(named name: String) -> UInt32? {
        var entry = passwd()
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16_384) { room in
            var found: UnsafeMutablePointer<passwd>?
            guard getpwnam_r(name, &entry, room.baseAddress!, room.count, &found) == 0, let found else { return nil }
            return found.pointee.pw_uid
        }
    }

    /// Parses a whole number of `ms`, `s`, `m` or `h`, of at most 1,000 days.
    static func duration(_ text: String) -> Duration? {
        guard text.last?.isLetter == true, let duration = Duration(plimsoll: text), duration <= .seconds(86_400_000)
        else { return nil }
        return duration
    }

    /// Tells whether `name` may name a unit. Unit names also name files and control groups.
    static func isUnitName(_ name: String) -> Bool {
        func isLetterOrDigit(_ byte: UInt8) -> Bool {
            isDigit(byte) || UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte | 0x20
        }
        guard let first = name.utf8.first, isLetterOrDigit(first), name.utf8.count <= 64 else { return false }
        return name.utf8.allSatisfy { isLetterOrDigit($0) || "-_.".utf8.contains($0) }
    }

    static func isVariableName(_ name: String) -> Bool {
        guard let first = name.utf8.first, !isDigit(first), name.utf8.count <= 256 else { return false }
        return name.utf8.allSatisfy {
            isDigit($0) || UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0 | 0x20 || $0 == UInt8(ascii: "_")
        }
    }

    /// Returns the reason why `path` is not an absolute path without `.` or `..` components; `nil` if `path` is valid.
    static func problem(ofPath path: String) -> String? {
        if !path.hasPrefix("/") { return "is not an absolute path" }
        if path.utf8.count > 4095 { return "is longer than a path may be" }
        if path.utf8.contains(0) { return "holds a zero byte" }
        return path.split(separator: "/").contains { $0 == "." || $0 == ".." } ? "holds . or .. components" : nil
    }

    private static func isDigit(_ byte: UInt8) -> Bool { UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte }

    // MARK: - Commands

    /// The reason why a line is not a command.
    struct CommandProblem: Error { var message: String }

    /// Splits `line` into words by shell rules, with quotes and backslashes. Throws on text that a shell would
    /// substitute: a literal `$HOME` or `*.log` is never the intended argument.
    static func words(_ line: String) throws(CommandProblem) -> [String] {
        var words: [String] = []
        var word: String?
        var quote: Character?
        var isEscaped = false
        for character in line {
            if isEscaped {
                // Within double quotes, only these characters lose their backslash.
                if quote == "\"", !"\"\\$`".contains(character) { word = (word ?? "") + "\\" }
                word = (word ?? "") + String(character)
                isEscaped = false
            } else if character == "\\", quote != "'" {
                isEscaped = true
            } else if let open = quote {
                if open == "\"", "$`".contains(character) { throw shell(character) }
                if character == open { quote = nil } else { word = (word ?? "") + String(character) }
            } else if character == "'" || character == "\"" {
                quote = character
                word = word ?? ""
            } else if character == " " || character == "\t" {
                if let finished = word { words.append(finished) }
                word = nil
            } else {
                if "|&;<>()$`*?[]{}\n\r".contains(character) || (word == nil && "#~".contains(character)) {
                    throw shell(character)
                }
                word = (word ?? "") + String(character)
            }
        }
        if let quote { throw CommandProblem(message: "a quote \(quote) is not closed") }
        if isEscaped { throw CommandProblem(message: "the line ends in a backslash") }
        if let word { words.append(word) }
        return words
    }

    private static func shell(_ character: Character) -> CommandProblem {
        let shown = character.isNewline ? "a line end" : "\(character)"
        return CommandProblem(
            message: "\(shown) is shell syntax, and no shell runs; write a list, such as [/bin/sh, -c, \"...\"]")
    }
}

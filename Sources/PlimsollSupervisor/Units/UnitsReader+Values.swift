import Plimsoll
import Yams  // of the trait "Supervisor"

// Kinds of values.
extension UnitsReader {
    mutating func command(_ node: Node) -> [String]? {
        var words: [String] = []
        if case .sequence(let list) = node {
            for element in list {
                guard let word = text(element) else {
                    refuse(element, "has \(Self.kind(of: element)) among its words; allowed is text")
                    return nil
                }
                words.append(word)
            }
        } else if let line = text(node) {
            do throws(UnitValues.CommandProblem) { words = try UnitValues.words(line) } catch {
                refuse(node, error.message)
                return nil
            }
        } else {
            refuse(node, "is \(Self.shown(node)); allowed is a list of words, or a line of them")
            return nil
        }
        guard let program = words.first else {
            refuse(node, "is empty; it needs the path of a program")
            return nil
        }
        if words.contains(where: { $0.utf8.contains(0) }) { refuse(node, "holds a zero byte, which no argument may") }
        if !program.contains("/") {
            refuse(
                node,
                "\"\(program.prefix(80))\" is not searched for in PATH; write the path of the program, such as /usr/bin/\(program.prefix(80))"
            )
        }
        return words
    }

    mutating func environment(_ node: Node) -> [String: String] {
        let ours = ["NOTIFY_SOCKET", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "PLIMSOLL_SUPERVISOR"]
        var variables: [String: String] = [:]
        forEachPair(node) { reader, name, value in
            guard UnitValues.isVariableName(name) else {
                return reader.refuse(
                    value, "is not the name of a variable; allowed are letters, digits and _, the first not a digit")
            }
            if ours.contains(name) || name.hasPrefix("LISTEN_") {
                return reader.refuse(value, "is set by the supervisor itself")
            }
            guard let text = reader.text(value) else {
                return reader.refuse(value, "is \(Self.shown(value)); allowed is text, and \"\" for an empty one")
            }
            if text.utf8.contains(0) { return reader.refuse(value, "holds a zero byte, which no variable may") }
            variables[name] = text
        }
        return variables
    }

    mutating func dependencies(_ node: Node) -> [String] {
        guard case .sequence(let list) = node else {
            refuse(node, "is \(Self.shown(node)); allowed is a list of units")
            return []
        }
        var names: [String] = []
        for element in list {
            guard let name = text(element) else {
                refuse(element, "has \(Self.kind(of: element)) in it; allowed are names of units")
                continue
            }
            if names.contains(name) {
                refuse(element, "has \"\(name.prefix(64))\" twice")
                continue
            }
            names.append(name)
            depends(on: name, at: element)
        }
        return names
    }

    mutating func path(_ node: Node) -> String? {
        guard let path = text(node) else {
            refuse(node, "is \(Self.shown(node)); allowed is a path")
            return nil
        }
        guard let problem = UnitValues.problem(ofPath: path) else { return path }
        refuse(node, "is \(Self.shown(node)), which \(problem)")
        return nil
    }

    mutating func integer(_ node: Node, in range: ClosedRange<Int>, _ what: String) -> Int? {
        if let number = bare(node).flatMap(UnitValues.integer), range.contains(number) { return number }
        refuse(node, "is \(Self.shown(node)); allowed is \(what) from \(range.lowerBound) to \(range.upperBound)")
        return nil
    }

    mutating func flag(_ node: Node) -> Bool? {
        if let text = bare(node), text == "true" || text == "false" { return text == "true" }
        refuse(node, "is \(Self.shown(node)); allowed are true and false")
        return nil
    }

    mutating func word<Word: RawRepresentable<String> & CaseIterable>(_ node: Node, _ type: Word.Type) -> Word? {
        let text = text(node)
        if let word = text.flatMap({ Word(rawValue: $0) }) { return word }
        let words = Word.allCases.map(\.rawValue)
        let allowed = words.dropLast().joined(separator: ", ") + " and " + words[words.count - 1]
        refuse(
            node,
            "is \(Self.shown(node)); allowed are \(allowed)\(text.map { Spelling.suggestion(for: $0, among: words) } ?? "")"
        )
        return nil
    }

    /// Parses a user name or number.
    mutating func user(_ node: Node) -> UInt32? {
        if let text = text(node) {
            if let number = UInt32(text), number < .max { return number }
            if let number = UnitValues.user(named: text) { return number }
        }
        refuse(node, "is \(Self.shown(node)); allowed is the name or the number of a user of this machine")
        return nil
    }

    mutating func duration(_ node: Node, in range: ClosedRange<Duration>, _ allowed: String) -> Duration? {
        if let duration = text(node).flatMap(UnitValues.duration), range.contains(duration) { return duration }
        let unit = text(node).flatMap(UnitValues.integer) != nil ? "; a time has a unit: ms, s, m or h" : ""
        refuse(node, "is \(Self.shown(node)); allowed is a time \(allowed)\(unit)")
        return nil
    }

    mutating func bytes(_ node: Node) -> ByteCount? {
        let range = ByteCount.mebibytes(1)...ByteCount.gibibytes(1 << 20)
        if let bytes = text(node).flatMap({ ByteCount($0) }), range.contains(bytes) { return bytes }
        let unit =
            text(node).flatMap(UnitValues.integer).map { "; without a unit these are bytes: did you mean \($0)M?" }
            ?? ""
        refuse(node, "is \(Self.shown(node)); allowed is a size from 1M, such as 512M or 2G\(unit)")
        return nil
    }
}

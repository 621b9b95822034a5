import Plimsoll
import Yams

/// The keys of a unit.
private enum UnitKey: String, CaseIterable {
    case command, process, group, environment, directory, role, importance, memory, suspension, exitsOnSuspend, keepAlive, allowance, restart,
        dependencies
}

extension UnitsReader {
    /// The unit that `node` describes; `nil` if there is no saying what it is.
    mutating func readUnit(_ name: String, _ node: Node) -> ServiceUnit? {
        var unit = ServiceUnit(name: name, origin: .command([]))
        var places: [UnitKey: Node] = [:]
        forEachPair(node, allowed: UnitKey.allCases.map(\.rawValue)) { reader, name, value in
            guard let key = UnitKey(rawValue: name) else { return }
            places[key] = value
            reader.read(key, value, into: &unit)
        }
        let origins = [UnitKey.command, .process, .group].filter { places[$0] != nil }
        guard origins.count == 1 else {
            let found = origins.isEmpty ? "none" : origins.map(\.rawValue).joined(separator: " and ")
            refuse(node, "it has \(found) of the keys command, process and group; it needs one of them")
            return nil
        }
        check(&unit, places)
        return unit
    }

    private mutating func read(_ key: UnitKey, _ node: Node, into unit: inout ServiceUnit) {
        switch key {
        case .command: if let command = command(node) { unit.origin = .command(command) }
        case .process: if let number = integer(node, in: 2...4_194_304, "the number of a process") { unit.origin = .process(Int32(number)) }
        case .group: if let path = path(node) { unit.origin = .group(path) }
        case .environment: unit.environment = environment(node)
        case .directory: unit.directory = path(node)
        case .role: if let role = word(node, ServiceUnit.Role.self) { unit.role = role }
        case .importance: if let importance = integer(node, in: 0...1000, "a whole number") { unit.importance = importance }
        case .memory: readMemory(node, into: &unit)
        case .suspension: if let suspension = word(node, ServiceUnit.Suspension.self) { unit.suspension = suspension }
        case .exitsOnSuspend: if let exits = flag(node) { unit.exitsOnSuspend = exits }
        case .keepAlive: unit.keepAlive = duration(node, in: .seconds(600)...(.seconds(86_400)), "from 10m to 24h")
        case .allowance: unit.allowance = duration(node, in: .seconds(1)...(.seconds(86_400)), "from 1s to 24h")
        case .restart: if let restart = word(node, ServiceUnit.Restart.self) { unit.restart = restart }
        case .dependencies: unit.dependencies = dependencies(node)
        }
    }

    /// What makes no sense together.
    private mutating func check(_ unit: inout ServiceUnit, _ places: [UnitKey: Node]) {
        func refuseIfThere(_ reader: inout UnitsReader, _ keys: [UnitKey], _ message: String) {
            for key in keys {
                guard let node = places[key] else { continue }
                reader.key = key.rawValue
                reader.refuse(node, message)
                reader.key = nil
            }
        }
        if places[.command] == nil {
            // What the supervisor did not start it can't start again.
            unit.restart = .never
            refuseIfThere(&self, [.environment, .directory, .restart], "is for units that have a command; this one is only looked after")
        }
        if unit.suspension == .never {
            if unit.exitsOnSuspend { refuseIfThere(&self, [.exitsOnSuspend], "has no meaning with suspension: never") }
            refuseIfThere(&self, [.keepAlive], "has no meaning with suspension: never")
        } else if unit.exitsOnSuspend {
            refuseIfThere(&self, [.keepAlive], "has no meaning with exitsOnSuspend: it is never suspended")
        }
        if let request = unit.memoryRequest, let limit = unit.memoryLimit, request > limit {
            refuseIfThere(&self, [.memory], "requests \(request), more than its limit of \(limit)")
        }
    }

    private mutating func readMemory(_ node: Node, into unit: inout ServiceUnit) {
        var (request, limit): (ByteCount?, ByteCount?) = (nil, nil)
        forEachPair(node, allowed: ["request", "limit"]) { reader, name, value in
            if name == "request" { request = reader.bytes(value) } else { limit = reader.bytes(value) }
        }
        (unit.memoryRequest, unit.memoryLimit) = (request, limit)
    }

    // MARK: - Kinds of values

    private mutating func command(_ node: Node) -> [String]? {
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
            refuse(node, "\"\(program.prefix(80))\" is looked for nowhere; write the path of the program, such as /usr/bin/\(program.prefix(80))")
        }
        return words
    }

    private mutating func environment(_ node: Node) -> [String: String] {
        let ours = ["NOTIFY_SOCKET", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "PLIMSOLL_SUPERVISOR"]
        var variables: [String: String] = [:]
        forEachPair(node) { reader, name, value in
            guard UnitValues.isVariableName(name) else {
                return reader.refuse(value, "is no name of a variable; allowed are letters, digits and _ of which the first is no digit")
            }
            if ours.contains(name) { return reader.refuse(value, "is set by the supervisor itself") }
            guard let text = reader.text(value) else {
                return reader.refuse(value, "is \(Self.shown(value)); allowed is text, and \"\" for an empty one")
            }
            if text.utf8.contains(0) { return reader.refuse(value, "holds a zero byte, which no variable may") }
            variables[name] = text
        }
        return variables
    }

    private mutating func dependencies(_ node: Node) -> [String] {
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

    private mutating func path(_ node: Node) -> String? {
        guard let path = text(node) else {
            refuse(node, "is \(Self.shown(node)); allowed is a path")
            return nil
        }
        guard let problem = UnitValues.problem(ofPath: path) else { return path }
        refuse(node, "is \(Self.shown(node)), which \(problem)")
        return nil
    }

    private mutating func integer(_ node: Node, in range: ClosedRange<Int>, _ what: String) -> Int? {
        if let number = bare(node).flatMap(UnitValues.integer), range.contains(number) { return number }
        refuse(node, "is \(Self.shown(node)); allowed is \(what) from \(range.lowerBound) to \(range.upperBound)")
        return nil
    }

    private mutating func flag(_ node: Node) -> Bool? {
        if let text = bare(node), text == "true" || text == "false" { return text == "true" }
        refuse(node, "is \(Self.shown(node)); allowed are true and false")
        return nil
    }

    private mutating func word<Word: RawRepresentable<String> & CaseIterable>(_ node: Node, _ type: Word.Type) -> Word? {
        let text = text(node)
        if let word = text.flatMap({ Word(rawValue: $0) }) { return word }
        let words = Word.allCases.map(\.rawValue)
        let allowed = words.dropLast().joined(separator: ", ") + " and " + words[words.count - 1]
        refuse(node, "is \(Self.shown(node)); allowed are \(allowed)\(text.map { Spelling.suggestion(for: $0, among: words) } ?? "")")
        return nil
    }

    private mutating func duration(_ node: Node, in range: ClosedRange<Duration>, _ allowed: String) -> Duration? {
        if let duration = text(node).flatMap(UnitValues.duration), range.contains(duration) { return duration }
        let unit = text(node).flatMap(UnitValues.integer) != nil ? "; a time has a unit: ms, s, m or h" : ""
        refuse(node, "is \(Self.shown(node)); allowed is a time \(allowed)\(unit)")
        return nil
    }

    private mutating func bytes(_ node: Node) -> ByteCount? {
        let range = ByteCount.mebibytes(1)...ByteCount.gibibytes(1 << 20)
        if let bytes = text(node).flatMap({ ByteCount($0) }), range.contains(bytes) { return bytes }
        let unit = text(node).flatMap(UnitValues.integer).map { "; without a unit these are bytes: did you mean \($0)M?" } ?? ""
        refuse(node, "is \(Self.shown(node)); allowed is a size from 1M, such as 512M or 2G\(unit)")
        return nil
    }
}

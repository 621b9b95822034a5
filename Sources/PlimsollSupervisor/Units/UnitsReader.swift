import Plimsoll
import Yams  // of the trait "Supervisor"

/// A reader for the nodes of a units file that collects the problems.
struct UnitsReader {
    let file: String
    var problems: [UnitsFileError.Problem] = []
    private(set) var units: [ServiceUnit] = []
    private(set) var policy: [String: UnitsFile.Setting] = [:]
    /// All valid names under `units:`, including those of units with problems. A dependency on such a unit is not a
    /// problem.
    private var names: [String] = []
    private var dependencies: [UnitDependencies.Edge] = []
    /// The unit and key being read, for problems.
    var unit: String?
    var key: String?

    init(file: String) { self.file = file }

    mutating func read(_ root: Node) {
        guard case .mapping(let top) = root else {
            return refuse(
                root, "the file is \(Self.kind(of: root)); it must be a map with the keys version, policy and units")
        }
        var found: Set<String> = []
        // Dependencies are checked after all units are known.
        forEachPair(top, allowed: ["version", "policy", "units"]) { reader, name, node in
            found.insert(name)
            switch name {
            case "version":
                if reader.text(node) != "1" { reader.refuse(node, "is \(Self.shown(node)); allowed is 1") }
            case "policy": reader.readPolicy(node)
            default: reader.readUnits(node)
            }
        }
        for name in ["version", "units"] where !found.contains(name) {
            refuse(root, "the key \"\(name)\" is missing\(name == "version" ? "; it is 1" : "")")
        }
        let declared = names
        for problem in UnitDependencies.problems(dependencies, names: declared) { problems.append(problem) }
    }

    private mutating func readPolicy(_ node: Node) {
        forEachPair(node) { reader, name, value in
            guard let text = reader.text(value) else {
                return reader.refuse(value, "is \(Self.shown(value)); allowed is a number or a time such as 30s")
            }
            let setting = UnitsFile.Setting(text: text, line: value.mark?.line ?? 0, column: value.mark?.column ?? 0)
            guard setting.number != nil || setting.duration != nil || name == "division" else {
                return reader.refuse(
                    value, "is \(Self.shown(value)); allowed is a number or a time such as 250ms, 30s, 10m or 1h")
            }
            reader.policy[name] = setting
        }
    }

    private mutating func readUnits(_ node: Node) {
        forEachPair(node) { reader, name, value in
            reader.key = nil
            guard UnitValues.isUnitName(name) else {
                return reader.refuse(
                    value,
                    "\"\(name.prefix(80))\" is not the name of a unit; allowed are 1 to 64 letters, digits, -, _ and ., the first a letter or digit"
                )
            }
            guard reader.names.count < UnitsFile.maximumUnits else {
                return reader.refuse(value, "the file has more than \(UnitsFile.maximumUnits) units")
            }
            reader.unit = name
            reader.names.append(name)
            if let unit = reader.readUnit(name, value) { reader.units.append(unit) }
            reader.unit = nil
        }
    }

    mutating func depends(on name: String, at node: Node) {
        guard let unit else { return }
        dependencies.append(.init(unit: unit, on: name, line: node.mark?.line ?? 0, column: node.mark?.column ?? 0))
    }

    // MARK: - Nodes

    /// Records a problem with `node`, together with the unit and key being read.
    mutating func refuse(_ node: Node, _ message: String) {
        problems.append(
            .init(line: node.mark?.line ?? 0, column: node.mark?.column ?? 0, unit: unit, key: key, message: message))
    }

    /// Calls `body` with each pair of a map whose key is allowed.
    mutating func forEachPair(_ node: Node, allowed: [String]? = nil, _ body: (inout UnitsReader, String, Node) -> Void)
    {
        guard case .mapping(let mapping) = node else {
            return refuse(node, "is \(Self.shown(node)); allowed is a map (key: value)")
        }
        forEachPair(mapping, allowed: allowed, body)
    }

    private mutating func forEachPair(
        _ mapping: Node.Mapping, allowed: [String]?, _ body: (inout UnitsReader, String, Node) -> Void
    ) {
        let outer = key
        defer { key = outer }
        for (keyNode, value) in mapping {
            key = outer
            guard case .scalar(let scalar) = keyNode else {
                refuse(keyNode, "a key is \(Self.kind(of: keyNode)); allowed is text")
                continue
            }
            let name = scalar.string
            if !problems.isEmpty, Duplicate.isPlaceholder(name) { continue }
            if let allowed, !allowed.contains(name) {
                let suggestion = Spelling.suggestion(for: name, among: allowed)
                refuse(
                    keyNode,
                    "the key \"\(name.prefix(64))\" is not known\(suggestion.isEmpty ? "; allowed are \(allowed.joined(separator: ", "))" : suggestion)"
                )
                continue
            }
            key = outer.map { "\($0).\(name)" } ?? name
            body(&self, name, value)
        }
    }

    /// Returns the text of a scalar that isn't null; `nil` for any other node.
    func text(_ node: Node) -> String? {
        guard case .scalar(let scalar) = node, !Self.isNull(scalar) else { return nil }
        return scalar.string
    }

    /// Returns the text of an unquoted scalar. Numbers and booleans are written without quotes.
    func bare(_ node: Node) -> String? {
        guard case .scalar(let scalar) = node, scalar.style == .plain || scalar.style == .any else { return nil }
        return text(node)
    }

    private static func isNull(_ scalar: Node.Scalar) -> Bool {
        (scalar.style == .plain || scalar.style == .any) && ["", "~", "null", "Null", "NULL"].contains(scalar.string)
    }

    static func kind(of node: Node) -> String {
        switch node {
        case .mapping: "a map"
        case .sequence: "a list"
        case .scalar(let scalar): isNull(scalar) ? "nothing" : "text"
        case .alias: "an alias"
        }
    }

    /// Returns the value as shown in a problem.
    static func shown(_ node: Node) -> String {
        guard case .scalar(let scalar) = node, !isNull(scalar) else { return kind(of: node) }
        let text = scalar.string.unicodeScalars.prefix(80).map {
            $0.value < 0x20 || $0.value == 0x7f ? "?" : String($0)
        }.joined()
        return "\"\(text)\(scalar.string.unicodeScalars.count > 80 ? "..." : "")\""
    }
}

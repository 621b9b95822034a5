/// The start order of units.
enum UnitDependencies {
    /// One dependency of a unit, with its position in the file.
    struct Edge: Sendable, Hashable {
        var unit: String
        var on: String
        var line: Int
        var column: Int
    }

    /// Returns the dependencies on unknown units, and the dependency cycles.
    static func problems(_ edges: [Edge], names: [String]) -> [UnitsFileError.Problem] {
        let known = Set(names)
        func problem(_ edge: Edge, _ message: String) -> UnitsFileError.Problem {
            .init(line: edge.line, column: edge.column, unit: edge.unit, key: "dependencies", message: message)
        }
        let unknown = edges.filter { !known.contains($0.on) }.map { edge in
            problem(
                edge,
                "the file has no unit \"\(edge.on.prefix(64))\"\(Spelling.suggestion(for: edge.on, among: names.filter { $0 != edge.unit }))"
            )
        }
        return unknown
            + circles(edges.filter { known.contains($0.on) }, names).map { circle in
                problem(
                    circle[circle.count - 1],
                    "is a cycle: \((circle.map(\.unit) + [circle[0].unit]).joined(separator: " -> ")); leave one out")
            }
    }

    /// Returns the cycles, each as its edges. No two cycles share a closing edge.
    private static func circles(_ edges: [Edge], _ names: [String]) -> [[Edge]] {
        let from = Dictionary(grouping: edges, by: \.unit)
        var circles: [[Edge]] = []
        // Names whose traversal is complete: all cycles through such a name are known.
        var left: Set<String> = []
        for name in names where !left.contains(name) {
            // The current path, with the number of edges already followed at each unit. Chains may hold a thousand
            // units, so there is no recursion.
            var way: [Edge] = [], turns = [(unit: name, next: 0)]
            var place = [name: 0]
            while let (unit, next) = turns.last {
                guard let edge = from[unit]?.dropFirst(next).first else {
                    left.insert(unit)
                    place[unit] = nil
                    turns.removeLast()
                    _ = way.popLast()
                    continue
                }
                turns[turns.count - 1].next += 1
                if let start = place[edge.on] {
                    circles.append(Array(way[start...]) + [edge])
                } else if !left.contains(edge.on) {
                    place[edge.on] = turns.count
                    turns.append((edge.on, 0))
                    way.append(edge)
                }
            }
        }
        return circles
    }
}

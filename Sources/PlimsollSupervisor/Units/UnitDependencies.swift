/// Who must run before whom.
enum UnitDependencies {
    /// One unit named among another's dependencies, and where.
    struct Edge: Sendable, Hashable {
        var unit: String
        var on: String
        var line: Int
        var column: Int
    }

    /// Dependencies on what there is not, and circles.
    static func problems(_ edges: [Edge], names: [String]) -> [UnitsFileError.Problem] {
        let known = Set(names)
        func problem(_ edge: Edge, _ message: String) -> UnitsFileError.Problem {
            .init(line: edge.line, column: edge.column, unit: edge.unit, key: "dependencies", message: message)
        }
        let unknown = edges.filter { !known.contains($0.on) }.map { edge in
            problem(edge, "there is no unit \"\(edge.on.prefix(64))\"\(Spelling.suggestion(for: edge.on, among: names.filter { $0 != edge.unit }))")
        }
        return unknown
            + circles(edges.filter { known.contains($0.on) }, names).map { circle in
                problem(circle[circle.count - 1], "goes round: \((circle.map(\.unit) + [circle[0].unit]).joined(separator: " -> ")); leave one out")
            }
    }

    /// Circles, each as its edges; none shares an edge that closes it with another.
    private static func circles(_ edges: [Edge], _ names: [String]) -> [[Edge]] {
        let from = Dictionary(grouping: edges, by: \.unit)
        var circles: [[Edge]] = []
        // A name that was left need not be gone into again: all circles through it are known.
        var left: Set<String> = []
        for name in names where !left.contains(name) {
            // The way here, and at each unit how many of its edges have been gone. A thousand units may stand in one row, so no recursion.
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

import Plimsoll

/// The importance of dependencies. A unit inherits the importance of the most important foreground unit that
/// depends on this one, directly or through others. A foreground service gets no answers from a frozen database.
enum Dependants {
    /// Traverses from the most important foreground unit downwards and visits each unit once, so cycles terminate.
    static func raise(_ units: inout [Candidate]) {
        guard units.contains(where: { !$0.report.dependencies.isEmpty }) else { return }
        var index: [String: Int] = [:]
        index.reserveCapacity(units.count)
        for (number, unit) in units.enumerated() { index[unit.name] = number }

        // Buckets by importance: there are only 1001 values, so no sort is needed.
        var heads = [Int](repeating: -1, count: 1001), next = [Int](repeating: -1, count: units.count)
        for (number, unit) in units.enumerated() where unit.isInFront && unit.hears {
            next[number] = heads[unit.importance]
            heads[unit.importance] = number
        }
        var isReached = [Bool](repeating: false, count: units.count), open: [Int] = []
        for importance in stride(from: 1000, through: 0, by: -1) {
            var start = heads[importance]
            while start >= 0 {
                open.append(start)
                start = next[start]
            }
            while let number = open.popLast() {
                if isReached[number] { continue }
                isReached[number] = true
                units[number].importance = max(units[number].importance, importance)
                units[number].isInFront = true
                for name in units[number].report.dependencies {
                    if let needed = index[name], !isReached[needed] { open.append(needed) }
                }
            }
        }
    }
}

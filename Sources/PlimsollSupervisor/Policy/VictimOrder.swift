import Plimsoll

/// The order of victims. There is one victim at a time, so no sort is needed: the first is found in at most two passes.
enum VictimOrder {
    /// Units whose size is at least this share of the largest count as equally large.
    static let likeness = 0.9

    /// Among frozen units, selects the largest (C90); among units of similar size, the least important. Units that come
    /// straight back go last.
    static func suspended(
        _ units: [UnitSnapshot], by size: (UnitSnapshot) -> ByteCount, where isEligible: (UnitSnapshot) -> Bool
    )
        -> Int?
    {
        var largest: [ByteCount?] = [nil, nil]
        for unit in units where isEligible(unit) {
            let group = unit.comesBack ? 1 : 0
            largest[group] = max(largest[group] ?? size(unit), size(unit))
        }
        let comesBack = largest[0] == nil
        guard let largest = largest[0] ?? largest[1] else { return nil }
        return first(units, where: { $0.comesBack == comesBack && size($0) >= largest * likeness && isEligible($0) }) {
            left, right in
            if left.importance != right.importance { return left.importance < right.importance }
            if size(left) != size(right) { return size(left) > size(right) }
            return left.name < right.name
        }
    }

    /// Among running units, selects deferred work before background work before foreground units. Within each class,
    /// units that come straight back go last, then the least important goes first, then the largest.
    static func running(_ units: [UnitSnapshot], where isEligible: (UnitSnapshot) -> Bool) -> Int? {
        first(units, where: isEligible) { left, right in
            if left.class != right.class { return left.class < right.class }
            if left.comesBack != right.comesBack { return right.comesBack }
            return isLess(left, right)
        }
    }

    /// Selects the unit to notify first: the least important, then the largest.
    static func notified(_ units: [UnitSnapshot], where isEligible: (UnitSnapshot) -> Bool) -> Int? {
        first(units, where: isEligible, before: isLess)
    }

    /// Selects the unit to return first when there is room: the most important, then the smallest.
    static func returning(
        _ units: [UnitSnapshot], by size: (UnitSnapshot) -> ByteCount, where isEligible: (UnitSnapshot) -> Bool
    ) -> Int? {
        first(units, where: isEligible) { left, right in
            if left.importance != right.importance { return left.importance > right.importance }
            if size(left) != size(right) { return size(left) < size(right) }
            return left.name < right.name
        }
    }

    private static func isLess(_ left: UnitSnapshot, _ right: UnitSnapshot) -> Bool {
        if left.importance != right.importance { return left.importance < right.importance }
        if left.report.charge != right.report.charge { return left.report.charge > right.report.charge }
        return left.name < right.name
    }

    private static func first(
        _ units: [UnitSnapshot], where isEligible: (UnitSnapshot) -> Bool, before: (UnitSnapshot, UnitSnapshot) -> Bool
    ) -> Int? {
        var best: Int?
        for index in units.indices where isEligible(units[index]) {
            if let current = best, !before(units[index], units[current]) { continue }
            best = index
        }
        return best
    }
}

extension UnitSnapshot {
    /// Rank among running units, the lowest goes first: 0 deferred, 1 background, 2 foreground.
    fileprivate var `class`: Int { isInFront ? 2 : report.role == .deferred ? 0 : 1 }
}

/// The importance of dependencies. A unit inherits the importance of the most important foreground unit that
/// depends on this one, directly or through others. A foreground service gets no answers from a frozen database.
enum PriorityInheritance {
    /// Traverses from the most important foreground unit downwards and visits each unit once, so cycles terminate.
    static func raise(_ units: inout [UnitSnapshot]) {
        guard units.contains(where: { !$0.report.dependencies.isEmpty }) else { return }
        var index: [String: Int] = [:]
        index.reserveCapacity(units.count)
        for (number, unit) in units.enumerated() { index[unit.name] = number }

        // Buckets by importance: there are only 1001 values, so no sort is needed.
        var heads = [Int](repeating: -1, count: 1001), next = [Int](repeating: -1, count: units.count)
        for (number, unit) in units.enumerated() where unit.isInFront && unit.isReachable {
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

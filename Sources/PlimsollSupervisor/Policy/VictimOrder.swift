import Plimsoll

/// Who goes first. One victim at a time, so this never sorts: it finds the first, in two passes at most.
enum VictimOrder {
    /// Up to this share less than the largest counts as large as it.
    static let likeness = 0.9

    /// Of units that stand still: the largest (C90), among those about as large the least important. What comes straight back goes last.
    static func standing(_ units: [Candidate], by size: (Candidate) -> ByteCount, where isEligible: (Candidate) -> Bool) -> Int? {
        var largest: [ByteCount?] = [nil, nil]
        for unit in units where isEligible(unit) {
            let group = unit.comesBack ? 1 : 0
            largest[group] = max(largest[group] ?? size(unit), size(unit))
        }
        let comesBack = largest[0] == nil
        guard let largest = largest[0] ?? largest[1] else { return nil }
        return first(units, where: { $0.comesBack == comesBack && size($0) >= largest * likeness && isEligible($0) }) { left, right in
            if left.importance != right.importance { return left.importance < right.importance }
            if size(left) != size(right) { return size(left) > size(right) }
            return left.name < right.name
        }
    }

    /// Of units that run: deferred work before background work before what is in front; within those what comes straight back last, then the least important
    /// first, then the largest.
    static func running(_ units: [Candidate], where isEligible: (Candidate) -> Bool) -> Int? {
        first(units, where: isEligible) { left, right in
            if left.class != right.class { return left.class < right.class }
            if left.comesBack != right.comesBack { return right.comesBack }
            return isLess(left, right)
        }
    }

    /// Who is told first: the least important, then the largest.
    static func told(_ units: [Candidate], where isEligible: (Candidate) -> Bool) -> Int? { first(units, where: isEligible, before: isLess) }

    /// Who comes back first when there is room: the most important, then the smallest.
    static func returning(_ units: [Candidate], by size: (Candidate) -> ByteCount, where isEligible: (Candidate) -> Bool) -> Int? {
        first(units, where: isEligible) { left, right in
            if left.importance != right.importance { return left.importance > right.importance }
            if size(left) != size(right) { return size(left) < size(right) }
            return left.name < right.name
        }
    }

    private static func isLess(_ left: Candidate, _ right: Candidate) -> Bool {
        if left.importance != right.importance { return left.importance < right.importance }
        if left.report.charge != right.report.charge { return left.report.charge > right.report.charge }
        return left.name < right.name
    }

    private static func first(_ units: [Candidate], where isEligible: (Candidate) -> Bool, before: (Candidate, Candidate) -> Bool) -> Int? {
        var best: Int?
        for index in units.indices where isEligible(units[index]) {
            if let current = best, !before(units[index], units[current]) { continue }
            best = index
        }
        return best
    }
}

extension Candidate {
    /// Which of those that run goes first: 0 deferred, 1 background, 2 in front.
    fileprivate var `class`: Int { isInFront ? 2 : report.role == .deferred ? 0 : 1 }
}

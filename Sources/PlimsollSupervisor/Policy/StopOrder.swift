/// The order in which units are asked to end at shutdown. A unit ends after the units that depend on this one.
enum StopOrder {
    /// Returns the units that no other living unit depends on. If all living units depend on each other in a cycle,
    /// returns all of them.
    ///
    /// - Parameter living: the living units, each with its dependencies.
    static func next(_ living: [String: [String]]) -> Set<String> {
        var free = Set(living.keys)
        for (name, dependencies) in living { for needed in dependencies where needed != name { free.remove(needed) } }
        return free.isEmpty ? Set(living.keys) : free
    }

    /// Returns the number of turns needed if each unit ends when asked: 1 where there are no dependencies. The time for
    /// one turn is the whole time divided by this number.
    static func turns(_ living: [String: [String]]) -> Int {
        var left = living, turns = 0
        while !left.isEmpty {
            for name in next(left) { left[name] = nil }
            turns += 1
        }
        return max(1, turns)
    }
}

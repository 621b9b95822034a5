/// Who is asked to end, and when, where all are to: a unit comes after those that need it.
enum StopOrder {
    /// Of the living, each with what it depends on, those that nobody alive needs; all of them if they need each other in a circle.
    static func next(_ living: [String: [String]]) -> Set<String> {
        var free = Set(living.keys)
        for (name, dependencies) in living { for needed in dependencies where needed != name { free.remove(needed) } }
        return free.isEmpty ? Set(living.keys) : free
    }

    /// In how many turns all are asked if each ends: 1 where none needs another. What one turn may take is the whole time divided by this.
    static func turns(_ living: [String: [String]]) -> Int {
        var left = living, turns = 0
        while !left.isEmpty {
            for name in next(left) { left[name] = nil }
            turns += 1
        }
        return max(1, turns)
    }
}

/// Operations of several threads on one key of a cache at about the same time, with their answers.
///
/// A history is linearizable if the operations have an order that agrees with all answers, in which each operation
/// takes effect at one instant between its begin and its end (Herlihy and Wing, TOPLAS 1990). A depth-first search with
/// memory finds the order (Wing and Gong, JPDC 1993; Lowe, "Testing for linearizability", 2017). Keys are independent,
/// so each key has a separate history.
///
/// The model is a map that may forget. A miss is always allowed. After a miss the value is gone: no later operation may
/// find that value again.
struct KeyHistory {
    enum Call: Hashable {
        /// Stores a value that no other operation stores.
        case insert(Int)
        case read
        case remove
        /// Removes every value that is present before the call.
        case purge
        /// Returns the present value, or loads a value that no other operation stores. Loads of one key at the same
        /// time share a value.
        case load(Int)
    }

    struct Operation {
        var call: Call
        /// The value found, removed or loaded; `nil` for none.
        var answer: Int?
        /// The instants of begin and end. Equal instants count as overlapping.
        var begin, end: Int64
        /// The instant at which this operation itself began to load; `nil` for none.
        var loadBegin: Int64?

        var text: String {
            let load = loadBegin.map { ", loads at \($0)" } ?? ""
            return "\(call) = \(answer.map { "\($0)" } ?? "nil") [\(begin), \(end)\(load)]"
        }
    }

    /// The operations, at most 64.
    let operations: [Operation]

    /// True if no operation that began after a removal or a purge was answered with a value whose load began before.
    /// Such a load may have read the source before the change that made the removal necessary.
    var isFresh: Bool {
        operations.allSatisfy { operation in
            guard let answer = operation.answer, let begin = operations.first(where: { $0.call == .load(answer) })?.loadBegin else { return true }
            return !operations.contains { other in
                (other.call == .remove || other.call == .purge) && begin < other.begin && other.end < operation.begin
            }
        }
    }

    private struct Place: Hashable {
        /// A bit for each operation that has taken effect.
        var done: UInt64
        var value: Int?
    }

    /// True if some order of the operations explains all answers.
    var isLinearizable: Bool {
        var visited = Set<Place>()
        return isExplained(from: Place(done: 0, value: nil), &visited)
    }

    private func isExplained(from place: Place, _ visited: inout Set<Place>) -> Bool {
        if place.done.nonzeroBitCount == operations.count { return true }
        guard visited.insert(place).inserted else { return false }
        let pending = operations.indices.filter { place.done & 1 << UInt64($0) == 0 }
        // An operation that ended before another began comes first.
        let firstEnd = pending.map { operations[$0].end }.min() ?? .max
        for index in pending where operations[index].begin <= firstEnd {
            for value in values(after: index, from: place.value)
            where isExplained(from: Place(done: place.done | 1 << UInt64(index), value: value), &visited) {
                return true
            }
        }
        return false
    }

    /// Returns the values that may be stored after an operation; none if the answer is impossible in this place.
    private func values(after index: Int, from value: Int?) -> [Int?] {
        let operation = operations[index]
        switch operation.call {
        case .insert(let new): return [new]
        case .purge: return [nil]
        case .read:
            guard let answer = operation.answer else { return [nil] }
            return answer == value ? [value] : []
        case .remove:
            guard let answer = operation.answer else { return [nil] }
            return answer == value ? [nil] : []
        case .load:
            guard let answer = operation.answer else { return [] }
            if answer == value { return [value] }
            // This operation has loaded the value, or another one at the same time. The value need not stay: a
            // concurrent insert, removal or purge wins.
            let isLoaded = operations.contains {
                $0.call == .load(answer) && $0.begin <= operation.end && operation.begin <= $0.end
            }
            return isLoaded ? [answer, value] : []
        }
    }
}

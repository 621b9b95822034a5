/// Divides memory among holders so that the time spent on loads is least. Pure: the same input gives the same shares.
///
/// The cost of a holder is its misses at a size times its load time. The best division is found by a dynamic programme
/// over units of memory, because curves need not be convex: a loop saves nothing until the whole loop fits. Shares move
/// only for a gain that is worth the reloads, and a little at a time.
package struct Division: Sendable {
    /// A holder of memory.
    package struct Holder: Sendable, Hashable {
        /// Bytes held.
        package var held: Int
        /// Misses by size; `nil` or unreliable if unknown. The holder then keeps its share.
        package var curve: MissCurve?
        /// Time of a load in nanoseconds.
        package var loadTime: Double
        /// Bounds of the share, in bytes.
        package var least: Int
        package var most: Int

        package init(held: Int, curve: MissCurve?, loadTime: Double, least: Int = 0, most: Int = .max) {
            self.held = min(max(0, held), Division.mostBytes)
            self.curve = curve
            self.loadTime = loadTime.isFinite ? min(max(0, loadTime), Division.longestLoad) : 0
            self.least = min(max(0, least), Division.mostBytes)
            self.most = max(self.least, min(most, Division.mostBytes))
        }

        /// The curve, if shares may be drawn from that.
        var known: MissCurve? { curve.flatMap { $0.isReliable ? $0 : nil } }
        func cost(at bytes: Int) -> Double { (known?.misses(at: bytes) ?? 0) * loadTime }
    }

    /// The shares, and what they are expected to save.
    package struct Result: Sendable, Hashable {
        /// Bytes of each holder.
        package var shares: [Int]
        /// The shares of least cost, towards which the shares move.
        package var target: [Int]
        /// Load time saved by these shares, as part of the load time that memory can save at all; `0...1`.
        package var gain: Double
        /// True if some share differs from the one before.
        package var hasMoved: Bool
    }

    /// Units that the memory is divided into.
    package static let units = 64
    /// Least gain that is worth a move, as part of the cost that memory can avoid.
    package static let leastGain = 0.01
    /// Largest part of the memory that moves at once.
    package static let step = 0.1
    /// Most bytes that are divided; larger numbers are wrong.
    package static let mostBytes = 1 << 50
    /// Two hours in nanoseconds.
    static let longestLoad = 7.2e12

    /// Returns the next shares of `budget` bytes.
    ///
    /// - Parameters:
    ///   - holders: the holders.
    ///   - shares: the shares so far; the held bytes at the beginning.
    ///   - budget: the sum of the shares.
    /// - Complexity: O(number of holders); some 2,000 steps for each of up to sixteen holders. For n holders beyond,
    ///   O(n log n).
    package static func next(_ holders: [Holder], from shares: [Int], budget: Int) -> Result {
        let budget = min(max(0, budget), mostBytes)
        let current = fit(shares, to: budget, holders)
        let movable = holders.indices.filter { holders[$0].known != nil }
        let free = movable.reduce(0) { $0 + current[$1] }
        guard movable.count > 1, free >= units else {
            return Result(shares: current, target: current, gain: 0, hasMoved: false)
        }
        let best = best(movable.map { holders[$0] }, budget: free)
        func cost(_ shares: [Int]) -> Double { movable.reduce(0) { $0 + holders[$1].cost(at: shares[$1]) } }
        var target = current
        for (place, index) in movable.enumerated() { target[index] = best[place] }
        let avoidable = movable.reduce(0) { $0 + holders[$1].cost(at: 0) - holders[$1].cost(at: free) }
        let gain = avoidable > 0 ? (cost(current) - cost(target)) / avoidable : 0
        guard gain >= leastGain else {
            return Result(shares: current, target: current, gain: max(0, gain), hasMoved: false)
        }
        let moved = movable.reduce(0) { $0 + max(0, target[$1] - current[$1]) }
        let part = min(1, step * Double(budget) / Double(max(1, moved)))
        let next = holders.indices.map { current[$0] + Int((Double(target[$0] - current[$0]) * part).rounded(.down)) }
        return Result(shares: next, target: target, gain: min(1, gain), hasMoved: next != current)
    }

    /// Scales shares to `budget`, within the bounds of the holders.
    private static func fit(_ shares: [Int], to budget: Int, _ holders: [Holder]) -> [Int] {
        var result = holders.map { _ in 0 }, open = Array(holders.indices), left = budget
        // Each pass settles the holders that are at a bound, or is the last.
        while !open.isEmpty {
            let weights = open.map { index in Double(index < shares.count ? min(max(1, shares[index]), mostBytes) : 1) }
            let sum = weights.reduce(0, +)
            for (index, weight) in zip(open, weights) { result[index] = Int(Double(left) * weight / sum) }
            let bound = open.filter { result[$0] < holders[$0].least || result[$0] > holders[$0].most }
            guard !bound.isEmpty else { break }
            for index in bound {
                result[index] = min(max(result[index], holders[index].least), holders[index].most)
                left = max(0, left - result[index])
            }
            open.removeAll { bound.contains($0) }
        }
        return result
    }

    /// Returns the shares with the least cost; each holder gets at least one unit, as far as there are units.
    static func best(_ holders: [Holder], budget: Int) -> [Int] {
        guard holders.count <= mostProgrammed else { return bestOfMany(holders, budget: budget) }
        let unit = max(1, budget / units)
        let programme = Programme(holders, unit: unit) { holder in
            let least = min(units, max(1, (holder.least + unit - 1) / unit))
            return least...max(least, min(units, holder.most / unit))
        }
        let costs = programme.costs
        // Memory that saves nothing more is left where it is cheapest to have: in the fewest units of least cost.
        guard let used = costs.indices.filter({ costs[$0] < .infinity }).min(by: { costs[$0] < costs[$1] }) else {
            return leasts(holders, budget: budget, dividesRest: true)
        }
        let shares = programme.choice(using: used).map { $0 * unit }
        return spread(budget - shares.reduce(0, +), over: shares, holders)
    }

    /// Returns the least share of each holder; no more than equal shares where the least shares do not fit.
    ///
    /// - Parameter dividesRest: true to add the memory left in equal parts.
    private static func leasts(_ holders: [Holder], budget: Int, dividesRest: Bool) -> [Int] {
        let count = max(1, holders.count), left = budget - holders.reduce(0) { $0 + $1.least }
        guard left >= 0 else { return holders.map { dividesRest ? budget / count : min($0.least, budget / count) } }
        return holders.map { min($0.most, $0.least + (dividesRest ? left / count : 0)) }
    }

    /// The most holders that the programme divides for. More would get few units each.
    private static let mostProgrammed = units / 4

    /// The dynamic programme: the least cost of the holders by units used.
    private struct Programme {
        private(set) var costs = [0.0] + [Double](repeating: .infinity, count: units)
        /// Units of each holder, by the units that the holders up to that one use.
        private var chosen: [[Int]] = []

        init(_ holders: [Holder], unit: Int, _ range: (Holder) -> ClosedRange<Int>) {
            for holder in holders {
                let range = range(holder), own = (0...units).map { holder.cost(at: $0 * unit) }
                var next = [Double](repeating: .infinity, count: units + 1)
                var choice = [Int](repeating: range.lowerBound, count: units + 1)
                for used in 0...units where costs[used] < .infinity {
                    for count in range where used + count <= units {
                        let cost = costs[used] + own[count]
                        if cost < next[used + count] { (next[used + count], choice[used + count]) = (cost, count) }
                    }
                }
                costs = next
                chosen.append(choice)
            }
        }

        /// Returns the units of each holder.
        func choice(using used: Int) -> [Int] {
            var used = used, result = chosen.map { _ in 0 }
            for place in chosen.indices.reversed() {
                result[place] = chosen[place][used]
                used -= result[place]
            }
            return result
        }
    }

    // MARK: Many holders

    /// A part of a holder's memory, and the cost that each byte of the part saves.
    private struct Piece {
        var holder: Int
        var bytes: Int
        var saved: Double
    }

    /// Returns shares whose cost is nearly the least: memory goes where each byte saves most, along the lower convex
    /// hulls of the curves. A piece that does not fit is passed over, since half of a loop saves nothing.
    private static func bestOfMany(_ holders: [Holder], budget: Int) -> [Int] {
        var shares = leasts(holders, budget: budget, dividesRest: false)
        var left = budget - shares.reduce(0, +)
        for piece in pieces(holders, from: shares, upTo: budget) where piece.bytes <= left {
            shares[piece.holder] += piece.bytes
            left -= piece.bytes
        }
        return spread(left, over: shares, holders)
    }

    /// Returns what each holder may get beyond its share, the most worthwhile first.
    private static func pieces(_ holders: [Holder], from shares: [Int], upTo bytes: Int) -> [Piece] {
        var pieces: [Piece] = []
        for (index, holder) in holders.enumerated() {
            let least = shares[index], most = min(bytes, max(least, holder.most))
            let sizes = (holder.known?.points ?? []).lazy.map(\.bytes).filter { $0 > least && $0 < most }
            var hull = [(bytes: least, cost: holder.cost(at: least))]
            for size in sizes + [most] where size > least {
                let next = (bytes: size, cost: holder.cost(at: size))
                // Drop corners above the line from the corner before to the next one.
                while hull.count > 1,
                    saving(hull[hull.count - 2], hull[hull.count - 1]) <= saving(hull[hull.count - 1], next)
                {
                    hull.removeLast()
                }
                hull.append(next)
            }
            for (from, to) in zip(hull, hull.dropFirst()) where to.cost < from.cost {
                pieces.append(Piece(holder: index, bytes: to.bytes - from.bytes, saved: saving(from, to)))
            }
        }
        return pieces.sorted { $0.saved > $1.saved }
    }

    private static func saving(_ from: (bytes: Int, cost: Double), _ to: (bytes: Int, cost: Double)) -> Double {
        (from.cost - to.cost) / Double(to.bytes - from.bytes)
    }

    // MARK: The sum

    /// Returns the least cost of all holders together by the bytes that they share, as the misses of a curve with few
    /// points.
    package static func sum(_ holders: [Holder], upTo bytes: Int) -> MissCurve {
        let known = holders.filter { $0.known != nil }, bytes = min(max(units, bytes), mostBytes)
        // Memory of holders without a curve saves as much as ever.
        let fixed = holders.reduce(0) { $0 + ($1.known == nil ? $1.held : 0) }, nothing = known.map { _ in 0 }
        let most = known.reduce(0) { $0 + $1.cost(at: 0) }
        var points: [MissCurve.Point] = [.init(bytes: max(1, fixed), misses: most)]
        if known.count <= mostProgrammed {
            let unit = bytes / units, costs = Programme(known, unit: unit) { _ in 0...units }.costs
            points += (1...units).map { .init(bytes: fixed + $0 * unit, misses: costs[$0]) }
        } else {
            for piece in pieces(known, from: nothing, upTo: bytes) {
                let last = points[points.count - 1]
                points.append(
                    .init(bytes: last.bytes + piece.bytes, misses: last.misses - piece.saved * Double(piece.bytes)))
            }
        }
        return MissCurve(requests: most, points: points, isReliable: !known.isEmpty).simplified(to: mostPoints)
    }

    /// The most points of a sum.
    package static let mostPoints = 12

    /// Adds what is left over to the shares in proportion.
    private static func spread(_ bytes: Int, over shares: [Int], _ holders: [Holder]) -> [Int] {
        guard bytes > 0 else { return shares }
        let sum = Double(max(1, shares.reduce(0, +)))
        return shares.indices.map { index in
            min(
                max(shares[index], holders[index].most),
                shares[index] + Int(Double(bytes) * Double(shares[index]) / sum))
        }
    }
}

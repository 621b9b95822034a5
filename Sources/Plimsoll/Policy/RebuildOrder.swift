/// In which order holders of one `RebuildCost` are asked: what is made again in the least time a byte first, those that are about as quick together, each for the
/// share it holds. Who doesn't know stands where the middle of those who do is. Allocates nothing.
///
///     var order = RebuildOrder(0..<count, rate)
///     while order.advance(0..<count, rate) {
///         for index in 0..<count where order.includes(rate(index)) { … }
///     }
struct RebuildOrder: Sendable {
    /// Up to this many times the least counts as the same: one cache is not to be emptied for a few per cent that the next loads may turn around (T25).
    static let likeness = 2.0

    /// The middle one of the known; zero if none is.
    private let middle: Double
    private var lowest = -Double.infinity
    private var highest = -Double.infinity

    /// - Parameters:
    ///   - holders: their numbers.
    ///   - rate: nanoseconds a byte of each; `nil` if it isn't known. What is no time counts as unknown.
    init(_ holders: Range<Int>, _ rate: (Int) -> Double?) {
        var known = 0
        for index in holders { if Self.valid(rate(index)) != nil { known += 1 } }
        var middle = 0.0
        // By counting, as sorting needs memory; there are tens of them.
        for index in holders {
            guard let candidate = Self.valid(rate(index)) else { continue }
            var less = 0, equal = 0
            for other in holders {
                guard let rate = Self.valid(rate(other)) else { continue }
                if rate < candidate { less += 1 } else if rate == candidate { equal += 1 }
            }
            if less <= (known - 1) / 2, (known - 1) / 2 < less + equal { middle = candidate }
        }
        self.middle = middle
    }

    /// Goes on to those whose turn is next; false if all have had theirs.
    mutating func advance(_ holders: Range<Int>, _ rate: (Int) -> Double?) -> Bool {
        var next = Double.infinity
        for index in holders {
            let place = place(of: rate(index))
            if place > highest { next = min(next, place) }
        }
        guard next < .infinity else { return false }
        (lowest, highest) = (next, next * Self.likeness)
        return true
    }

    /// Whether the turn is now that of one with that rate.
    func includes(_ rate: Double?) -> Bool {
        let place = place(of: rate)
        return place >= lowest && place <= highest
    }

    /// What one with that rate is ordered by.
    func place(of rate: Double?) -> Double { Self.valid(rate) ?? middle }

    private static func valid(_ rate: Double?) -> Double? { rate.flatMap { $0.isFinite && $0 >= 0 && $0 < 1e300 ? $0 : nil } }
}

/// The sizes between which a cache's own misses were found to fall steeply, as those of a loop do once the loop fits.
///
/// A sample of 240 keys places a cliff to within some 6 %. The cache itself knows better: if requests miss at a size,
/// they miss at each smaller size.
struct Cliff {
    private struct Side {
        var bytes: Int
        /// Misses as part of the requests.
        var ratio: Double
        /// Rounds until the side is forgotten.
        var rounds = Cliff.memory
    }

    /// Bytes held in the last round, and the requests since the cache has grown.
    private var last = (bytes: 0, requests: 0.0)
    /// Largest size with many misses, and the smallest with few.
    private var below: Side?
    private var above: Side?

    /// Rounds for which a side is remembered.
    private static let memory = 50
    /// Requests for each entry that a cache must have had since it has grown.
    private static let passes = 1.5
    /// Part of the requests by which the misses of the sample fall at a cliff.
    private static let height = 0.5
    /// The same where all that is requested fits.
    private static let endHeight = 0.1
    /// Part of that fall by which the misses may differ from those at an end.
    private static let end = 0.2

    /// Notes the misses of a round in which the cache held `bytes` throughout.
    ///
    /// - Parameters:
    ///   - ratio: the misses as part of the requests.
    ///   - count: the requests.
    ///   - entries: the number of entries.
    ///   - curve: the curve of the sample.
    ///   - end: the smallest size of the sample at which all fits that is requested; `nil` if none is large enough.
    mutating func note(
        _ ratio: Double, of count: Int, at bytes: Int, entries: Double, _ curve: MissCurve, end: Int? = nil
    ) {
        let hasGrown = Double(bytes) > Double(last.bytes) * 1.02
        last = (bytes, hasGrown ? 0 : last.requests + Double(count))
        below?.rounds -= 1
        above?.rounds -= 1
        if below?.rounds == 0 { below = nil }
        if above?.rounds == 0 { above = nil }
        guard curve.requests > 0 else { return }
        // Only where the sample has a cliff, and at one end of that: other streams differ from round to round as well.
        guard let left = curve.points.last(where: { $0.bytes <= bytes })?.misses,
            let right = curve.points.first(where: { $0.bytes >= bytes })
        else { return }
        // The misses fall to an end, or within a small step.
        let isEnd = right.bytes == end, fall = left - right.misses
        guard fall > (isEnd ? Self.endHeight : Self.height) * curve.requests else { return }
        let side = Side(bytes: bytes, ratio: ratio), place = (ratio * curve.requests - right.misses) / fall
        guard isEnd || place < Self.end || place > 1 - Self.end else { return }
        if place > (isEnd ? Self.end : 0.5) {
            // In a cache that has grown, a loop that fits is found again only after the whole loop.
            guard last.requests > Self.passes * entries else { return }
            if bytes >= below?.bytes ?? 0 { below = side }
            // Fewer keys fitted before than now.
            if let above, above.bytes <= bytes { self.above = nil }
        } else {
            if bytes <= above?.bytes ?? .max { above = side }
            if let below, below.bytes >= bytes { self.below = nil }
            // Still between the two sides.
            below?.rounds += 1
        }
    }

    /// Returns the bytes of all that is requested, by an estimate from so many sampled entries. An estimate that the cache
    /// itself has found too low is raised by the error to expect.
    func end(_ estimate: Int, entries: Int) -> Int {
        guard let below, below.bytes >= estimate else { return estimate }
        return above?.bytes ?? below.bytes + Int(Double(estimate) / Double(max(1, entries)).squareRoot())
    }

    /// Returns the curve with at least the misses of the lower side up to that side, and at most those of the upper
    /// side from there on.
    func applied(to curve: MissCurve) -> MissCurve {
        guard below != nil || above != nil else { return curve }
        var points = curve.points
        for side in [below, above].compactMap({ $0 }) where side.bytes > 0 {
            points.append(.init(bytes: side.bytes, misses: curve.misses(at: side.bytes)))
        }
        for index in points.indices {
            if let below, points[index].bytes <= below.bytes {
                points[index].misses = max(points[index].misses, below.ratio * curve.requests)
            }
            if let above, points[index].bytes >= above.bytes {
                points[index].misses = min(points[index].misses, above.ratio * curve.requests)
            }
        }
        return MissCurve(requests: curve.requests, points: points, isReliable: curve.isReliable)
    }
}

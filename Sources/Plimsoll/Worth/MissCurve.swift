/// The misses of a cache by the bytes that the cache may hold, as learnt from a sample of requests.
package struct MissCurve: Sendable, Hashable {
    /// A size of the cache, and the misses at that size.
    package struct Point: Sendable, Hashable {
        package var bytes: Int
        package var misses: Double

        package init(bytes: Int, misses: Double) { (self.bytes, self.misses) = (bytes, misses) }
    }

    /// Requests counted; later requests weigh more.
    package private(set) var requests: Double
    /// Points by rising bytes, with misses that do not rise.
    package private(set) var points: [Point] = []
    /// False if there are too few requests or too few keys to draw conclusions from.
    package var isReliable: Bool

    /// Creates a curve. Points are put in order; misses that rise with the size are noise, and are lowered. Misses and
    /// requests that are negative or no numbers count as zero.
    package init(requests: Double, points: [Point], isReliable: Bool = true) {
        self.requests = Self.count(requests)
        self.isReliable = isReliable
        for point in points.sorted(by: { $0.bytes < $1.bytes }) where point.bytes > 0 {
            let misses = min(self.points.last?.misses ?? self.requests, Self.count(point.misses))
            // Of points of one size, one stays.
            if self.points.last?.bytes == point.bytes { self.points.removeLast() }
            self.points.append(Point(bytes: point.bytes, misses: misses))
        }
    }

    private static func count(_ number: Double) -> Double { number.isFinite ? max(0, number) : 0 }

    /// Returns the misses at a size, linear between points. Without memory each request misses. Beyond the last point
    /// there are as many misses as there.
    package func misses(at bytes: Int) -> Double {
        var before = Point(bytes: 0, misses: requests)
        for point in points {
            if bytes < point.bytes {
                let share = Double(max(0, bytes) - before.bytes) / Double(point.bytes - before.bytes)
                return before.misses + (point.misses - before.misses) * share
            }
            before = point
        }
        return before.misses
    }

    /// Fall of the misses from one point to the next, as part of the requests, within which a curve is taken for a slope.
    private static let slope = 0.25

    /// Returns the curve corrected by what the cache itself has missed at that size.
    ///
    /// On a slope the curve is scaled, by a factor of two at most: what a sample gets wrong at one size, for the keys that
    /// happen to be in it, is wrong at others as well, as far as the same keys are in their samples. Where the misses fall
    /// steeply, as for a loop that nearly fits, the size at which they fall is not known, and the cache's own misses
    /// become a point.
    ///
    /// - Parameter parts: the parts of the keys that were sampled for each point. Each sample contains those of smaller
    ///   parts.
    func through(misses: Double, at bytes: Int, parts: [Double]) -> MissCurve {
        guard bytes > 0, let largest = points.last, bytes <= largest.bytes else { return self }
        let above = points.first { $0.bytes >= bytes }?.misses ?? 0
        let below = points.last { $0.bytes <= bytes }?.misses ?? requests
        let isSlope = below - above <= Self.slope * requests
        let expected = isSlope ? self.misses(at: bytes) : min(max(misses, above), below)
        let factor = expected > 0 && misses > 0 ? min(2, max(0.5, misses / expected)) : 1
        let part = zip(points, parts).first { $0.0.bytes >= bytes }?.1 ?? 0
        var scaled = zip(points, parts).map { point, own in
            // The error of a smaller sample is that of a larger one only by its part of the larger one.
            let share = own > 0 ? min(1, part / own) : 1
            return Point(bytes: point.bytes, misses: min(requests, point.misses * (1 + (factor - 1) * share)))
        }
        if !isSlope {
            scaled.removeAll { $0.bytes == bytes }
            scaled.append(Point(bytes: bytes, misses: min(requests, expected * factor)))
        }
        return MissCurve(requests: requests, points: scaled, isReliable: isReliable)
    }

    /// Returns the curve of `count` requests that miss as often.
    func scaled(to count: Double) -> MissCurve {
        let factor = requests > 0 ? count / requests : 0
        let points = points.map { Point(bytes: $0.bytes, misses: $0.misses * factor) }
        return MissCurve(requests: requests * factor, points: points, isReliable: isReliable)
    }

    /// Returns the curve with at most `count` points, of which the last stays: again and again the point is left out
    /// that differs least from a line between its neighbours.
    func simplified(to count: Int) -> MissCurve {
        var points = points
        while points.count > max(1, count) {
            func error(_ index: Int) -> Double {
                let before = index > 0 ? points[index - 1] : Point(bytes: 0, misses: requests), next = points[index + 1]
                let part = Double(points[index].bytes - before.bytes) / Double(max(1, next.bytes - before.bytes))
                return abs(before.misses + (next.misses - before.misses) * part - points[index].misses)
            }
            guard let least = points.indices.dropLast().min(by: { error($0) < error($1) }) else { break }
            points.remove(at: least)
        }
        return MissCurve(requests: requests, points: points, isReliable: isReliable)
    }
}

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
    package private(set) var points: [Point]
    /// False if there are too few requests or too few keys to draw conclusions from.
    package var isReliable: Bool

    /// Creates a curve. Points are put in order; misses that rise with the size are noise, and are lowered. Misses and
    /// requests that are negative or no numbers count as zero.
    package init(requests: Double, points: [Point], isReliable: Bool = true) {
        self.requests = Self.count(requests)
        self.isReliable = isReliable
        var lowest = self.requests
        self.points = points.filter { $0.bytes > 0 }.sorted { $0.bytes < $1.bytes }.map { point in
            lowest = min(lowest, Self.count(point.misses))
            return Point(bytes: point.bytes, misses: lowest)
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

    /// Returns the curve scaled so that there are `misses` at that size, by a factor of two at most: what a sample gets
    /// wrong at one size, for the keys that happen to be in it, is wrong at others as well.
    func through(misses: Double, at bytes: Int) -> MissCurve {
        let estimate = self.misses(at: bytes)
        guard estimate > 0, misses > 0 else { return self }
        let factor = min(2, max(0.5, misses / estimate))
        return MissCurve(
            requests: requests,
            points: points.map { Point(bytes: $0.bytes, misses: min(requests, $0.misses * factor)) },
            isReliable: isReliable)
    }
}

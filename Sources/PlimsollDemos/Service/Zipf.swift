import Glibc
package import PlimsollTesting

/// Zipf distribution of keys: the k-th most popular key has a frequency of about 1 / k^skew.
package struct Zipf {
    private let cumulative: [Double]

    /// Number of keys.
    package var count: Int { cumulative.count }

    /// Creates a distribution.
    ///
    /// - Precondition: `count` is at least 1.
    package init(count: Int, skew: Double) {
        precondition(count > 0, "Zipf: no keys")
        var sum = 0.0
        cumulative = (1...count).map { rank in
            sum += pow(Double(rank), -skew)
            return sum
        }
    }

    /// Returns a rank from zero, the most popular key.
    package func next(using random: inout SeededGenerator) -> Int {
        let point = Double.random(in: 0..<cumulative[cumulative.count - 1], using: &random)
        var low = 0, high = cumulative.count - 1
        while low < high {
            let middle = (low + high) / 2
            if cumulative[middle] > point { high = middle } else { low = middle + 1 }
        }
        return low
    }
}

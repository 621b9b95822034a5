import Glibc
import PlimsollTesting

/// Keys as traffic asks for them: the k-th most wanted with a frequency of about 1 / k^skew.
struct Zipf {
    private let cumulative: [Double]

    /// Number of keys.
    var count: Int { cumulative.count }

    /// - Precondition: at least one key.
    init(count: Int, skew: Double) {
        precondition(count > 0, "Zipf: no keys")
        var sum = 0.0
        cumulative = (1...count).map { rank in
            sum += pow(Double(rank), -skew)
            return sum
        }
    }

    /// A rank from zero, the most wanted.
    func next(using random: inout SeededGenerator) -> Int {
        let point = Double.random(in: 0..<cumulative[cumulative.count - 1], using: &random)
        var low = 0, high = cumulative.count - 1
        while low < high {
            let middle = (low + high) / 2
            if cumulative[middle] > point { high = middle } else { low = middle + 1 }
        }
        return low
    }
}

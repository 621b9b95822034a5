import Foundation

/// Ids as visitors request them: the k-th most popular with a frequency of about 1 / k^skew. A permutation assigns the
/// ranks to ids.
struct Popularity {
    private let cumulative: [Double]
    private var ids: [Int]

    init(count: Int, skew: Double, using random: inout SeededRandom) {
        var sum = 0.0
        cumulative = (1...count).map { rank in
            sum += pow(Double(rank), -skew)
            return sum
        }
        ids = Array(0..<count)
        shift(using: &random)
    }

    /// Assigns the ranks to other ids.
    mutating func shift(using random: inout SeededRandom) {
        for last in stride(from: ids.count - 1, to: 0, by: -1) {
            ids.swapAt(last, Int(random.next() % UInt64(last + 1)))
        }
    }

    /// Returns the next requested id.
    func next(using random: inout SeededRandom) -> Int {
        let point = random.share() * cumulative[cumulative.count - 1]
        var low = 0, high = cumulative.count - 1
        while low < high {
            let middle = (low + high) / 2
            if cumulative[middle] > point { high = middle } else { low = middle + 1 }
        }
        return ids[low]
    }
}

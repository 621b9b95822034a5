import Glibc

/// SplitMix64: small, fast, and the same everywhere for a seed.
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed &* 0x9e37_79b9_7f4a_7c15 &+ 0x632b_e59b_d9b4_e019 }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var word = state
        word = (word ^ (word >> 30)) &* 0xbf58_476d_1ce4_e5b9
        word = (word ^ (word >> 27)) &* 0x94d0_49bb_1331_11eb
        return word ^ (word >> 31)
    }
}

/// Keys as traffic asks for them: the k-th most wanted with a frequency of about 1 / k^skew.
struct Zipf {
    private let cumulative: [Double]

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

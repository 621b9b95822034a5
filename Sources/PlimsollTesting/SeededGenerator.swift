/// A random number generator that yields the same numbers everywhere for a seed: SplitMix64 (Steele et al., OOPSLA
/// 2014). Print the seed when a test fails.
public struct SeededGenerator: RandomNumberGenerator, Sendable {
    private var state: UInt64

    /// Creates a generator; the sequences of neighbouring seeds are unrelated.
    public init(seed: UInt64) { state = seed &* 0x9e37_79b9_7f4a_7c15 &+ 0x632b_e59b_d9b4_e019 }

    public mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var word = state
        word = (word ^ (word >> 30)) &* 0xbf58_476d_1ce4_e5b9
        word = (word ^ (word >> 27)) &* 0x94d0_49bb_1331_11eb
        return word ^ (word >> 31)
    }
}

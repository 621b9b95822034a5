/// A sequence of words in which every stretch is evenly spread: multiples of the golden ratio (Weyl's sequence;
/// Knuth, The Art of Computer Programming 3, 6.4).
enum Spread {
    static func word(_ number: UInt64, from start: UInt64) -> UInt64 { number &* 0x9e37_79b9_7f4a_7c15 &+ start }

    /// Returns the start of the sequence with the given number, far from the starts of other sequences. Uses the last
    /// step of SplitMix64 (Steele et al., OOPSLA 2014).
    static func start(_ number: UInt64, seed: UInt64) -> UInt64 {
        var word = seed &+ (number &+ 1) &* 0xd1b5_4a32_d192_ed03
        word = (word ^ (word >> 30)) &* 0xbf58_476d_1ce4_e5b9
        word = (word ^ (word >> 27)) &* 0x94d0_49bb_1331_11eb
        return word ^ (word >> 31)
    }
}

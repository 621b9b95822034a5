import CPlimsollMemory
import Synchronization

/// Counts of hits and misses, in a lane for each thread, so that counting neither makes readers meet nor holds one up: a locked instruction
/// would keep the next look-up's loads from beginning before this one's copy has ended.
// Unchecked: the memory is allocated at the beginning, atomic, and freed at the end.
final class Tallies: @unchecked Sendable {
    private static let lanes = 32
    /// A lane is two cache lines, as processors fetch them in pairs: its owner, hits, misses.
    private static let laneWords = 16

    /// The last lane is for all threads that have none of their own.
    private let words: UnsafeMutablePointer<Atomic<UInt>>

    init() {
        words = .allocate(capacity: (Self.lanes + 1) * Self.laneWords)
        for word in 0..<(Self.lanes + 1) * Self.laneWords { (words + word).initialize(to: Atomic(0)) }
    }

    deinit { words.deallocate() }

    @inline(__always) func hit() { count(1) }
    @inline(__always) func miss() { count(2) }

    var hits: Int { sum(1) }
    var misses: Int { sum(2) }

    // Relaxed, everywhere: sums of counts, that order nothing. Only its owner writes to a lane, so a load and a store lose nothing; a thread
    // that is given the number of one that has ended goes on with its lane.
    @inline(__always)
    private func count(_ word: Int) {
        let thread = plimsoll_thread_number()
        let lane = words + Int(truncatingIfNeeded: (thread >> 12 ^ thread >> 20) % UInt(Self.lanes)) * Self.laneWords
        let owner = lane[0].load(ordering: .relaxed)
        if owner == thread || owner == 0 && lane[0].compareExchange(expected: 0, desired: thread, ordering: .relaxed).exchanged {
            lane[word].store(lane[word].load(ordering: .relaxed) &+ 1, ordering: .relaxed)
        } else {
            words[Self.lanes * Self.laneWords + word].wrappingAdd(1, ordering: .relaxed)
        }
    }

    private func sum(_ word: Int) -> Int {
        (0...Self.lanes).reduce(0) { $0 + Int(bitPattern: words[$1 * Self.laneWords + word].load(ordering: .relaxed)) }
    }
}

import CPlimsollMemory
import Synchronization

/// Counts of hits and misses, spread over lines by thread, so that counting does not make readers meet.
// Unchecked: the memory is allocated at the beginning, atomic, and freed at the end.
final class Tallies: @unchecked Sendable {
    private static let lanes = 16
    private static let laneWords = 16

    private let words: UnsafeMutablePointer<Atomic<Int>>

    init() {
        words = .allocate(capacity: Self.lanes * Self.laneWords)
        for word in 0..<Self.lanes * Self.laneWords { (words + word).initialize(to: Atomic(0)) }
    }

    deinit { words.deallocate() }

    // Relaxed: sums of counts, that order nothing.
    @inline(__always) func hit() { lane[0].wrappingAdd(1, ordering: .relaxed) }
    @inline(__always) func miss() { lane[1].wrappingAdd(1, ordering: .relaxed) }

    var hits: Int { sum(0) }
    var misses: Int { sum(1) }

    private func sum(_ word: Int) -> Int {
        (0..<Self.lanes).reduce(0) { $0 + words[$1 * Self.laneWords + word].load(ordering: .relaxed) }
    }

    private var lane: UnsafeMutablePointer<Atomic<Int>> {
        // Threads' descriptors lie at least a page apart.
        let thread = plimsoll_thread_number()
        return words + (Int(truncatingIfNeeded: (thread >> 12) ^ (thread >> 20)) & (Self.lanes - 1)) * Self.laneWords
    }
}

import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import plimsoll_bench

@Suite(.serialized, .timeLimit(.minutes(5))) struct TortureTests {
    @Test func `a buffer under torture has whole contents or none`() throws {
        let seed = newSeed()
        print("seed \(seed)")
        let tally = try Torture(TorturedBuffers(total: .mebibytes(1)), seed: seed).run(readers: 2, reads: 5000, for: .seconds(1000))
        #expect(tally.reads >= 5000 && tally.wrongBytes == 0, "seed \(seed)")
    }

    @Test func `a cache under torture has whole values or misses`() throws {
        let seed = newSeed()
        print("seed \(seed)")
        let tally = try Torture(TorturedCache(total: .mebibytes(8)), seed: seed).run(readers: 2, reads: 20_000, for: .seconds(1000))
        #expect(tally.reads >= 20_000 && tally.wrongBytes == 0, "seed \(seed)")
    }

    @Test func `the torture adds up the readers' findings`() throws {
        struct Liar: Tortured {
            func read(_ random: inout SeededGenerator) -> Torture.Tally { Torture.Tally(reads: 2, wrongBytes: 8, dropped: 1) }
            func reclaim(_ random: inout SeededGenerator) {}
        }
        let tally = try Torture(Liar(), seed: 1).run(readers: 3, reads: 100, for: .seconds(1000))
        #expect(tally.reads >= 100 && tally.wrongBytes == tally.reads * 4 && tally.dropped == tally.reads / 2)
    }
}

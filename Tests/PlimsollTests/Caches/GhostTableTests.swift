import PlimsollTesting
import Testing

@testable import Plimsoll

@Suite struct GhostTableTests {
    @Test func `no ghost is remembered before there is room`() {
        var ghosts = GhostTable()
        let early = (ghosts.insert(1), ghosts.remove(1))
        #expect(early == (false, false) && ghosts.byteCount == 0)
        ghosts.reserve(0)
        let late = (ghosts.insert(1), ghosts.remove(1), ghosts.remove(1))
        #expect(late == (true, true, false), "once")
    }

    /// The table remembers 0.9 times the number of entries. The boundary is not sharp, because the share of evictions
    /// that falls into a bucket varies.
    @Test(arguments: [10, 100, 1000, 30_000, 36_000, 40_000, 200_000])
    func `recent evictions are remembered, and old ones are not`(entries: Int) {
        var ghosts = GhostTable(), random = SeededGenerator(seed: UInt64(entries))
        ghosts.reserve(entries)
        let window = max(1, entries * 9 / 10)
        let hashes = (0..<window * 5).map { _ in UInt32.random(in: 1 ... .max, using: &random) }
        for hash in hashes where !ghosts.insert(hash) { Issue.record("no room") }
        // Hits by age: up to half the window, the window, twice the window, and more.
        var kept = (0, 0, 0, 0)
        for (age, hash) in hashes.reversed().enumerated() where ghosts.remove(hash) {
            if age < window / 2 { kept.0 += 1 } else if age < window { kept.1 += 1 } else if age < window * 2 { kept.2 += 1 } else { kept.3 += 1 }
        }
        let all = kept.0 + kept.1 + kept.2 + kept.3
        #expect(Double(all) > Double(window) * 0.95 && Double(all) < Double(window) * 1.15, "\(all) for \(window)")
        #expect(Double(kept.0 + kept.1) > Double(window) * 0.8, "\(kept) of \(window)")
        #expect(Double(kept.0) > Double(window / 2) * 0.97, "\(kept) of \(window)")
        // Old ghosts that share bucket and mark with a newer ghost are found too.
        #expect(kept.3 <= 2 + window / 50, "\(kept) of \(window)")
    }

    @Test(arguments: [(80, true), (70, false)])
    func `a table that shrinks to a quarter keeps its contents, and a smaller one starts anew`(entries: Int, keeps: Bool) {
        var ghosts = GhostTable()
        ghosts.reserve(280)
        let isKept = ghosts.insert(1)
        // Room for 280 entries is 20 buckets; 80 entries need at least 5, and 70 at least 4.
        ghosts.reserve(entries)
        let isThere = ghosts.remove(1)
        #expect(isKept && isThere == keeps)
    }

    @Test func `a ghost removed from the middle leaves the others in order`() {
        var ghosts = GhostTable()
        // One bucket, whose nine newest ghosts count.
        ghosts.reserve(10)
        let hashes = (1...UInt32(9)).map { $0 &* 0x9E37_79B9 }
        for hash in hashes { _ = ghosts.insert(hash) }
        let isFifth = ghosts.remove(hashes[4])
        _ = ghosts.insert(0xABCD_1234)
        let left = hashes.map { ghosts.remove($0) }
        #expect(isFifth && left == [false, true, true, true, false, true, true, true, true], "only the oldest is evicted")
    }

    @Test func `a copy is independent`() {
        var ghosts = GhostTable()
        ghosts.reserve(100)
        for hash in 1...UInt32(50) { _ = ghosts.insert(hash &* 0x9E37_79B9) }
        var copy = ghosts.copy()
        let hash = UInt32(7) &* 0x9E37_79B9, removals = (ghosts.remove(hash), copy.remove(hash), copy.remove(hash))
        #expect(removals == (true, true, false))
    }
}

import PlimsollTesting
import Testing

@testable import Plimsoll

@Suite struct GhostTableTests {
    @Test func `nothing is remembered before there is room`() {
        var ghosts = GhostTable()
        let early = (ghosts.insert(1), ghosts.remove(1))
        #expect(early == (false, false) && ghosts.byteCount == 0)
        ghosts.reserve(0)
        let late = (ghosts.insert(1), ghosts.remove(1), ghosts.remove(1))
        #expect(late == (true, true, false), "once")
    }

    /// As many as there are entries, times 0.9; a few of the oldest are lost where a bucket overflows.
    @Test(arguments: [10, 100, 1000, 30_000, 36_000, 40_000, 200_000]) func `it remembers what left lately, and not what left before`(entries: Int) {
        var ghosts = GhostTable(), random = SeededGenerator(seed: UInt64(entries))
        ghosts.reserve(entries)
        let window = max(1, entries * 9 / 10)
        let hashes = (0..<window * 5).map { _ in UInt32.random(in: 1 ... .max, using: &random) }
        for hash in hashes where !ghosts.insert(hash) { Issue.record("no room") }
        var recent = 0, old = 0
        for (age, hash) in hashes.reversed().enumerated() {
            guard ghosts.remove(hash) else { continue }
            if age < window { recent += 1 } else { old += 1 }
        }
        #expect(Double(recent) > Double(window) * 0.8, "\(recent) of \(window)")
        // Such as share bucket and mark with a newer one.
        #expect(old <= 2 + window / 1000, "\(old) that left long ago")
    }

    @Test func `a copy is one of its own`() {
        var ghosts = GhostTable()
        ghosts.reserve(100)
        for hash in 1...UInt32(50) { _ = ghosts.insert(hash &* 0x9E37_79B9) }
        var copy = ghosts.copy()
        let hash = UInt32(7) &* 0x9E37_79B9, removals = (ghosts.remove(hash), copy.remove(hash), copy.remove(hash))
        #expect(removals == (true, true, false))
    }
}

import Testing

@testable import Plimsoll

/// Sizes of a table of ghosts.
@Suite struct GhostTableSizeTests {
    // Sixteen ghosts take a bucket of 32 bytes, and from four buckets on there is a quarter more.
    @Test(arguments: [(0, 32), (1, 32), (18, 32), (19, 64), (72, 160), (73, 192)])
    func `a table has buckets for nine tenths of the entries`(entries: Int, bytes: Int) {
        var ghosts = GhostTable()
        ghosts.reserve(entries)
        #expect(ghosts.byteCount == bytes && ghosts.entries == entries)
    }

    @Test(arguments: [0, 1]) func `a table for at most one entry remembers the last hash alone`(entries: Int) {
        var ghosts = GhostTable()
        ghosts.reserve(entries)
        let inserts = (ghosts.insert(7), ghosts.insert(9)), removals = (ghosts.remove(7), ghosts.remove(9))
        #expect(inserts == (true, true) && removals == (false, true))
    }

    @Test func `the gap that a removed ghost leaves matches no hash`() {
        var ghosts = GhostTable()
        ghosts.reserve(10)
        // The stored part of the second hash is the least.
        let calls = (ghosts.insert(7), ghosts.remove(7), ghosts.remove(0))
        #expect(calls == (true, true, false))
    }

    // Room for 10 entries is one bucket, and room for 120 is eight buckets.
    @Test(arguments: [(10, 12, true), (10, 19, false), (120, 30, true), (120, 18, false)])
    func `a table forgets its contents only if too small, or four times too large`(before: Int, after: Int, keeps: Bool) {
        var ghosts = GhostTable()
        ghosts.reserve(before)
        let isInserted = ghosts.insert(7)
        ghosts.reserve(after)
        let isFound = ghosts.remove(7)
        #expect(isInserted && isFound == keeps)
    }
}

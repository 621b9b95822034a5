import Testing

@testable import CacheBench

/// Letters as keys, so that a sequence of requests can be read.
private func keys(_ letters: String) -> [UInt32] { letters.utf8.map { UInt32($0 - 97) } }

/// A drawing of hits: `+` for a hit, `.` for a miss.
private func draw(_ letters: String, _ request: (UInt32) -> Bool) -> String {
    String(keys(letters).map { request($0) ? Character("+") : "." })
}

@Suite struct PolicyTests {
    @Test(arguments: [
        (requests: "abcabc", capacity: 2, hits: 2),  // a is kept, b and c share the other place: one of them hits
        (requests: "abcabc", capacity: 3, hits: 3),
        (requests: "abcdefgh", capacity: 2, hits: 0),
        (requests: "aabacada", capacity: 1, hits: 4),  // keys requested once are not kept
        (requests: "abcdabeabcde", capacity: 3, hits: 5),  // the book's example of 7 faults
        (requests: "", capacity: 1, hits: 0),
    ])
    func `no policy beats the optimal replay`(requests: String, capacity: Int, hits: Int) {
        #expect(OptimalReplay.hits(keys(requests), keyCount: 26, capacity: capacity) == hits)
    }

    @Test func `the optimal replay equals an exhaustive search`() {
        for seed in UInt64(0)..<200 {
            var state = seed &* 0x9e37_79b9_7f4a_7c15 | 1
            let requests = (0..<9).map { _ in
                state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
                return UInt32(state >> 33) % 4
            }
            for capacity in 1...3 {
                let best = mostHits(requests[...], held: [], capacity: capacity)
                #expect(
                    OptimalReplay.hits(requests, keyCount: 4, capacity: capacity) == best,
                    "seed \(seed), \(requests) in \(capacity)")
            }
        }
    }

    /// Returns the hits if after every request the best of all subsets that fit is kept.
    private func mostHits(_ requests: ArraySlice<UInt32>, held: Set<UInt32>, capacity: Int) -> Int {
        guard let key = requests.first else { return 0 }
        let rest = requests.dropFirst(), hit = held.contains(key) ? 1 : 0, all = held.union([key])
        guard all.count > capacity else { return hit + mostHits(rest, held: all, capacity: capacity) }
        return hit + (all.map { mostHits(rest, held: all.subtracting([$0]), capacity: capacity) }.max() ?? 0)
    }

    @Test(arguments: [
        (requests: "abcabc", budget: 2, drawing: "......"),
        (requests: "abacab", budget: 2, drawing: "..+.+."),
        (requests: "aabbab", budget: 2, drawing: ".+.+++"),
    ])
    func `exact LRU evicts the least recently used entry`(requests: String, budget: Int, drawing: String) {
        var lru = ExactLRU(budget: budget, keyCount: 26)
        #expect(draw(requests) { lru.request($0) } == drawing)
    }

    @Test func `entries count by their cost`() {
        // a costs 1, b 2, c 3: c replaces both, and a key that alone exceeds the budget evicts no other.
        var lru = ExactLRU(budget: 3, keyCount: 26) { Int($0) + 1 }
        #expect(draw("ababcabdb") { lru.request($0) } == "..++....+")
    }

    @Test(arguments: [
        // Ten places, one of them for newcomers. Keys requested once leave in their order. a comes back as a ghost and
        // stays.
        (requests: "abcdefghijka", capacity: 10, drawing: "............"),
        // Requested again before its turn to leave, a moves to the main queue, where keys requested once cannot evict
        // a.
        (requests: "aabcdefghijklmnopqrstuvwxyza", capacity: 10, drawing: ".+.........................+"),
        (requests: "abababab", capacity: 2, drawing: "..++++++"),
    ])
    func `one re-access is enough to keep an entry`(requests: String, capacity: Int, drawing: String) {
        var s3fifo = ReferenceS3FIFO(capacity: capacity, keyCount: 26)
        #expect(draw(requests) { s3fifo.request($0) } == drawing)
    }

    @Test func `a ghost that comes back goes to the main queue`() {
        var s3fifo = ReferenceS3FIFO(capacity: 10, keyCount: 26)
        // a is evicted for k and returns. Eleven newcomers later a is still there, in another queue.
        #expect(draw("abcdefghijka" + "lmnopqrstuv" + "a") { s3fifo.request($0) }.last == "+")
    }

    @Test func `seeded streams are the same every time`() {
        for ((first, seed), (second, _)) in zip(SyntheticTraces.all(), SyntheticTraces.all()) {
            #expect(first.requests == second.requests, "\(first.name), seed \(seed)")
            #expect(first.requests.allSatisfy { $0 < first.keyCount })
        }
    }
}

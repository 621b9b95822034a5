import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollHeap

/// Blocks that one root alone reaches, in a memory made of a table.
@Suite struct HeapReachTests {
    /// Blocks of 100 words by address, and the pointers in them.
    private struct Table: HeapReach.Memory {
        var pointers: [UInt64: [UInt64]]
        var texts: Set<UInt64> = []

        func block(at word: UInt64) -> HeapReach.Block? {
            pointers[word].map { _ in HeapReach.Block(address: word, size: 800, used: texts.contains(word) ? 0 : 800) }
        }

        func forEachWord(of block: HeapReach.Block, _ body: (UInt64) -> Void) {
            guard block.used > 0 else { return }
            for word in pointers[block.address] ?? [] { body(word) }
        }
    }

    private func name(_ number: UInt64) -> UInt64 { number << 20 }

    private func bytes(_ roots: [[UInt64]], _ pointers: [UInt64: [UInt64]], texts: Set<UInt64> = [], words: Int = 10_000) -> [Int]? {
        let named = Dictionary(uniqueKeysWithValues: pointers.map { (name($0.key), $0.value.map(name)) })
        return HeapReach.bytes(
            from: roots.map { $0.map(name) }, in: Table(pointers: named, texts: Set(texts.map(name))), atMost: words)
    }

    @Test func `each root has the blocks that the root reaches, each block once`() {
        #expect(bytes([[1, 1], [2], [7], []], [1: [3, 4], 3: [1, 4], 4: [], 2: [2]]) == [2400, 800, 0, 0])
    }

    @Test func `a block that two roots reach belongs to neither, and no block behind such a block is visited`() {
        #expect(bytes([[1, 9], [2, 9]], [1: [], 2: [], 9: [10], 10: [11], 11: []], words: 200) == [800, 800])
        // A parent with pointers to all of its children, as the cache of an entry.
        #expect(bytes([[1], [2], [3]], [1: [9], 2: [9], 3: [9], 9: [1, 2, 3]]) == [800, 800, 800])
    }

    @Test func `a block found to be shared later is taken back, with all blocks behind that block`() {
        // The first root reaches 5, and then 6 and 7, before the second root comes as far.
        let pointers: [UInt64: [UInt64]] = [1: [5], 5: [6], 6: [7], 7: [], 2: [3], 3: [4], 4: [8], 8: [5]]
        #expect(bytes([[1], [2]], pointers) == [800, 3200])
    }

    @Test func `texts are not searched for pointers`() {
        #expect(bytes([[1], [2]], [1: [3], 2: [], 3: []], texts: [1]) == [800, 800])
    }

    @Test func `roots that reach too many blocks give no answer`() {
        var chain: [UInt64: [UInt64]] = [:]
        for number in 1...50 { chain[UInt64(number)] = [UInt64(number + 1)] }
        #expect(bytes([[1]], chain, words: 5000) == [40_000])
        #expect(bytes([[1]], chain, words: 4999) == nil)
    }

    @Test func `in a random graph each root has at least the root's own blocks, and at most all blocks that the root reaches`() throws {
        let seed = newSeed()
        var random = SeededGenerator(seed: seed)
        for _ in 0..<200 {
            let count = UInt64.random(in: 1...30, using: &random)
            var pointers: [UInt64: [UInt64]] = [:]
            for number in 1...count {
                pointers[number] = (0..<Int.random(in: 0...3, using: &random)).map { _ in UInt64.random(in: 1...count, using: &random) }
            }
            let roots = (0..<3).map { _ in [UInt64.random(in: 1...count, using: &random)] }
            let reached = roots.map { root in
                var seen: Set<UInt64> = [], rest = root
                while let next = rest.popLast() { if seen.insert(next).inserted { rest += pointers[next] ?? [] } }
                return seen
            }
            let found = try #require(bytes(roots, pointers))
            for index in reached.indices {
                let others = reached.indices.filter { $0 != index }.reduce(into: Set<UInt64>()) { $0.formUnion(reached[$1]) }
                let own = reached[index].subtracting(others).count * 800
                #expect((own...reached[index].count * 800).contains(found[index]), "seed \(seed)")
            }
            // No block counts twice.
            #expect(found.reduce(0, +) <= reached.reduce(into: Set<UInt64>()) { $0.formUnion($1) }.count * 800, "seed \(seed)")
        }
    }
}

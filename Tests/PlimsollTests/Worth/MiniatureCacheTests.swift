import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// S3-FIFO in arrays, with linear searches.
private struct PlainS3FIFO {
    struct Entry {
        var hash: UInt32
        var cost: Int
        var marks = 0
    }

    let mostEntries: Int
    var capacity = 0
    var small: [Entry] = [], main: [Entry] = []
    /// Hashes that left the small queue, the latest last; zero for those that came back.
    var ghosts: [UInt32] = []

    init(entries: Int) { mostEntries = entries }

    var cost: Int { (small + main).reduce(0) { $0 + $1.cost } }
    var hashes: Set<UInt32> { Set((small + main).map(\.hash)) }

    mutating func change(_ hash: UInt32, _ body: (inout Entry) -> Void) -> Bool {
        if let place = small.firstIndex(where: { $0.hash == hash }) {
            body(&small[place])
        } else if let place = main.firstIndex(where: { $0.hash == hash }) {
            body(&main[place])
        } else {
            return false
        }
        return true
    }

    mutating func use(_ hash: UInt32) -> Bool { change(hash) { $0.marks = min(3, $0.marks + 1) } }

    mutating func insert(_ hash: UInt32, cost: Int) {
        guard cost <= capacity else { return }
        if change(hash, { $0.cost = cost }) { return evictExcess() }
        while self.cost + cost > capacity || small.count + main.count == mostEntries { evict() }
        let entry = Entry(hash: hash, cost: cost)
        if forgetGhost(hash) { main.append(entry) } else { small.append(entry) }
    }

    mutating func forgetGhost(_ hash: UInt32) -> Bool {
        guard let place = ghosts.lastIndex(of: hash) else { return false }
        let age = ghosts.count - 1 - place
        guard age < mostEntries else { return false }
        ghosts[place] = 0
        return age < max(1, (small.count + main.count) * 9 / 10)
    }

    mutating func remove(_ hash: UInt32) {
        small.removeAll { $0.hash == hash }
        main.removeAll { $0.hash == hash }
    }

    mutating func resize(to capacity: Int) {
        self.capacity = capacity
        evictExcess()
    }

    mutating func evictExcess() { while cost > capacity { evict() } }

    mutating func evict() {
        while true {
            let isFromSmall = !small.isEmpty && (small.reduce(0) { $0 + $1.cost } >= cost / 10 || main.isEmpty)
            var entry = isFromSmall ? small.removeFirst() : main.removeFirst()
            if entry.marks == 0 {
                if isFromSmall { ghosts.append(entry.hash) }
                return
            }
            entry.marks = isFromSmall ? 0 : entry.marks - 1
            main.append(entry)
        }
    }
}

/// A miniature with memory of its own.
private final class OwnedMiniature {
    private let memory: UnsafeMutableRawPointer
    var cache: MiniatureCache

    init(entries: Int = 112) {
        let count = MiniatureCache.byteCount(entries: entries)
        memory = .allocate(byteCount: count, alignment: 16)
        memory.initializeMemory(as: UInt8.self, repeating: 0, count: count)
        cache = MiniatureCache(at: memory, entries: entries)
    }

    deinit { memory.deallocate() }
}

@Suite struct MiniatureCacheTests {
    @Test(arguments: seeds(0..<4), [112, 240])
    func `after any history the miniature has the entries of a plain S3-FIFO`(seed: UInt64, entries: Int) {
        var random = SeededGenerator(seed: seed), plain = PlainS3FIFO(entries: entries)
        let miniature = OwnedMiniature(entries: entries), keys = UInt32.random(in: 8...600, using: &random)
        let mostCost = Int.random(in: 1...50, using: &random), capacity = Int.random(in: 1...4000, using: &random)
        plain.resize(to: capacity)
        miniature.cache.resize(to: capacity)
        for step in 0..<4000 {
            // The product of two draws makes some keys popular.
            let draw = UInt32.random(in: 0..<keys, using: &random) * UInt32.random(in: 0..<keys, using: &random) / keys
            let hash = (draw + 1) &* 0x9E37_79B9, cost = Int.random(in: 1...mostCost, using: &random)
            switch Int.random(in: 0..<400, using: &random) {
            case 0:
                let capacity = Int.random(in: 0...4000, using: &random)
                plain.resize(to: capacity)
                miniature.cache.resize(to: capacity)
            case 1:
                plain.small.removeAll { $0.hash % 3 == 0 }
                plain.main.removeAll { $0.hash % 3 == 0 }
                miniature.cache.keep { $0 % 3 != 0 }
            case 2..<20:
                plain.remove(hash)
                miniature.cache.remove(hash)
            default:
                let isHit = miniature.cache.use(hash)
                guard isHit == plain.use(hash) else {
                    Issue.record("step \(step): \(isHit ? "hit" : "miss")")
                    return
                }
                if !isHit {
                    plain.insert(hash, cost: cost)
                    miniature.cache.insert(hash, cost: UInt32(cost))
                }
            }
            guard miniature.cache.count == plain.hashes.count, miniature.cache.cost == plain.cost else {
                Issue.record(
                    "step \(step): \(miniature.cache.count) entries of \(miniature.cache.cost), expected \(plain.hashes.count) of \(plain.cost)")
                return
            }
        }
    }

    @Test(arguments: [112, 240])
    func `the number of entries is bounded, at any cost of an entry`(entries: Int) {
        let miniature = OwnedMiniature(entries: entries)
        miniature.cache.resize(to: 1 << 40)
        for hash in 1...UInt32(1000) { miniature.cache.insert(hash &* 0x9E37_79B9, cost: 0) }
        #expect(miniature.cache.count == entries && miniature.cache.cost == 0)
        miniature.cache.insert(1, cost: .max)
        #expect(miniature.cache.cost == Int(UInt32.max))
        miniature.cache.resize(to: -1)
        #expect(miniature.cache.cost == 0)
    }

    @Test func `a constant hash fills one entry`() {
        let miniature = OwnedMiniature()
        miniature.cache.resize(to: 1000)
        for cost in 1...UInt32(1000) { miniature.cache.insert(7, cost: cost) }
        #expect(miniature.cache.count == 1 && miniature.cache.cost == 1000)
    }
}

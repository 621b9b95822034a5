import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

@Suite struct CacheIndexTests {
    /// An index with memory of its own, beside a list of the slots and their hashes.
    private struct Model {
        let allocation: CacheAllocation
        let index: CacheIndex
        var hashes: [UInt32: UInt32] = [:]

        init(bits: Int) {
            allocation = CacheAllocation(4 << bits)
            index = CacheIndex(allocation.base, bits: bits)
        }

        mutating func add(_ slot: UInt32, _ hash: UInt32) {
            index.add(slot, hash)
            hashes[slot] = hash
        }

        mutating func remove(_ slot: UInt32) {
            guard let hash = hashes[slot] else { return }
            index.remove(at: index.place(of: slot, hash)) { hashes[$0] ?? 0 }
            hashes[slot] = nil
        }

        /// Lists `slot` under another hash, like a new entry after a look-up.
        mutating func renew(_ slot: UInt32, _ hash: UInt32) {
            guard let old = hashes[slot] else { return }
            var empty = hash & index.mask
            while index[empty] != 0 { empty = (empty &+ 1) & index.mask }
            let hole = index.remove(at: index.place(of: slot, old)) { hashes[$0] ?? 0 }
            index.add(slot, hash, at: empty, or: hole)
            hashes[slot] = hash
        }

        /// Slots that a look-up for `hash` visits.
        func candidates(_ hash: UInt32) -> [UInt32] {
            var slots: [UInt32] = [], place = hash & index.mask
            while case let cell = index[place], cell != 0 {
                if cell ^ (hash << index.bits) <= index.mask { slots.append((cell & index.mask) - 1) }
                place = (place &+ 1) & index.mask
            }
            return slots
        }

        /// True if every slot is found under its hash, and no other slot is listed.
        var isRight: Bool {
            hashes.allSatisfy { candidates($0.value).contains($0.key) } && (0...index.mask).count { index[$0] != 0 } == hashes.count
        }
    }

    @Test func `listed slots are found, and no others, after any removals`() {
        for (bits, hashes) in [(5, UInt32.max), (5, 3), (8, .max), (8, 15), (10, .max)] {
            for seed in seeds(0..<6) {
                var random = SeededGenerator(seed: seed), model = Model(bits: bits)
                defer { model.allocation.free() }
                for step in 0..<400 {
                    let slot = UInt32.random(in: 0..<3 << (UInt32(bits) - 2), using: &random)
                    // Some hashes have the last cell as their home, so that chains wrap around the end.
                    let hash = UInt32.random(in: 0...hashes, using: &random) &- (Bool.random(using: &random) ? 2 : 0)
                    switch model.hashes[slot] {
                    case nil: model.add(slot, hash)
                    case _ where Bool.random(using: &random): model.renew(slot, hash)
                    default: model.remove(slot)
                    }
                    if step % 16 == 0, !model.isRight {
                        Issue.record("bits \(bits), seed \(seed), step \(step)")
                        break
                    }
                }
                #expect(model.isRight, "bits \(bits), seed \(seed)")
            }
        }
    }

    /// Up to 65,536 cells, a cell itself gives the home. In a larger index, the hash of the slot gives the home.
    @Test(arguments: [15, 16, 17, 18]) func `a large index finds listed slots alone`(bits: Int) {
        var random = SeededGenerator(seed: UInt64(bits)), model = Model(bits: bits)
        defer { model.allocation.free() }
        let count = UInt32(3) << (bits - 2)
        for slot in 0..<count { model.add(slot, UInt32.random(in: 0 ... .max, using: &random)) }
        #expect(model.isRight)
        for slot in 0..<count where slot % 3 != 0 { model.remove(slot) }
        #expect(model.isRight)
        for slot in 0..<count where slot % 3 == 1 { model.add(slot, UInt32.random(in: 0 ... .max, using: &random)) }
        #expect(model.isRight)
        for (slot, hash) in model.hashes where slot % 6 == 0 {
            model.index.move(slot, to: slot + 2, hash)
            model.hashes[slot] = nil
            model.hashes[slot + 2] = hash
        }
        #expect(model.isRight)
        for slot in 0..<count { model.remove(slot) }
        #expect(model.isRight && model.hashes.isEmpty)
    }
}

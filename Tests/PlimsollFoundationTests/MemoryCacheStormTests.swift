import Foundation
import Plimsoll
import PlimsollFoundation
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(5))) struct MemoryCacheStormTests {
    typealias Citizens = MemoryCache<NSNumber, Citizen>

    /// A source of numbers, each of which comes once.
    private final class Serial: Sendable {
        private let last = Atomic<Int>(0)
        func next() -> Int { last.add(1, ordering: .relaxed).newValue }
    }

    /// Checks against a dictionary of the last object set under each key. A look-up returns that object or nothing,
    /// objects are lost only by a limit or a release, and every object that left is accounted for.
    @Test func `the limits hold after every call in random sequences`() {
        var evictions = 0, refusals = 0
        for seed in seeds(0..<60) {
            var random = SeededGenerator(seed: seed)
            let census = Census(), cache = Citizens(), witness = Witness<NSNumber, Citizen> { $0.number }
            cache.delegate = witness
            var model: [Int: Int] = [:], next = 0, mayLose = false
            for _ in 0..<1500 {
                let key = Int.random(in: 0..<60, using: &random)
                switch Int.random(in: 0..<40, using: &random) {
                case 0..<22:
                    next += 1
                    let isKept = cache.setObject(Citizen(next, census), forKey: key as NSNumber, cost: Int.random(in: -5...80, using: &random))
                    model[key] = isKept ? next : nil
                    if !isKept { refusals += 1 }
                    #expect((cache.object(forKey: key as NSNumber)?.number == next) == isKept, "seed \(seed)")
                case 22..<32:
                    let found = cache.object(forKey: key as NSNumber)?.number
                    #expect(found == model[key] || found == nil && mayLose, "seed \(seed)")
                case 32..<34:
                    cache.removeObject(forKey: key as NSNumber)
                    model[key] = nil
                case 34:
                    cache.removeAllObjects()
                    model = [:]
                case 35..<37:
                    cache.countLimit = Bool.random(using: &random) ? Int.random(in: 0...40, using: &random) : 0
                case 37..<39:
                    cache.totalCostLimit = Bool.random(using: &random) ? Int.random(in: 0...1000, using: &random) : 0
                default: _ = cache.release((Int.random(in: 0...300, using: &random)))
                }
                mayLose = mayLose || !witness.evicted.isEmpty
                #expect(cache.countLimit == 0 || cache.count <= cache.countLimit, "seed \(seed)")
                #expect(cache.totalCostLimit == 0 || cache.totalCost <= cache.totalCostLimit, "seed \(seed)")
                #expect(census.alive == cache.count, "seed \(seed)")
            }
            let left = (0..<60).compactMap { cache.object(forKey: $0 as NSNumber)?.number }
            #expect(left.count == cache.count && Set(left).isSubset(of: model.values), "seed \(seed)")
            #expect(Set(left).isDisjoint(with: witness.evicted) && Set(witness.evicted).count == witness.evicted.count, "seed \(seed)")
            #expect(model.values.allSatisfy { left.contains($0) || witness.evicted.contains($0) }, "seed \(seed): lost without a notification")
            evictions += witness.evicted.count
        }
        if !hasChosenSeed { #expect(evictions > 1000 && refusals > 10, "the properties were never exercised") }
    }

    @Test func `many threads share one cache: the limits hold, each object leaves once, and all die`() async {
        for seed in seeds(0..<4) {
            let census = Census(), made = Serial(), cache = Citizens()
            let witness = Witness<NSNumber, Citizen>({ $0.number }) { cache, citizen in
                if citizen.number % 50 == 0 { cache.removeObject(forKey: NSNumber(value: citizen.number % 97)) }
                _ = cache.object(forKey: NSNumber(value: citizen.number % 89))
            }
            cache.delegate = witness
            cache.countLimit = 50
            cache.totalCostLimit = 2000
            await withTaskGroup(of: Void.self) { group in
                for thread in 0..<4 {
                    group.addTask {
                        var random = SeededGenerator(seed: seed << 8 | UInt64(thread))
                        for turn in 0..<3000 {
                            let key = NSNumber(value: Int.random(in: 0..<97, using: &random))
                            switch turn % 100 {
                            case 0: cache.countLimit = Int.random(in: 20...50, using: &random)
                            case 1: cache.totalCostLimit = Int.random(in: 500...2000, using: &random)
                            case 2: _ = cache.release(100)
                            case 3: cache.removeObject(forKey: key)
                            case 4..<60: _ = cache.object(forKey: key)
                            default:
                                let number = made.next()
                                cache.setObject(Citizen(number, census), forKey: key, cost: number % 90)
                            }
                            // Never more than the greatest limits so far. Objects that threads hold at the moment are
                            // in no cache.
                            if cache.count > 50 || cache.totalCost > 2000 { Issue.record("seed \(seed): \(cache.count) objects, \(cache.totalCost)") }
                        }
                    }
                }
            }
            #expect(cache.count <= cache.countLimit && cache.totalCost <= cache.totalCostLimit && census.alive == cache.count, "seed \(seed)")
            #expect(Set(witness.evicted).count == witness.evicted.count && witness.evicted.count > 500, "seed \(seed)")
            cache.removeAllObjects()
            #expect(census.alive == 0 && cache.totalCost == 0 && cache.heldBytes == .zero, "seed \(seed)")
        }
    }

    @Test func `the limits of one cache hold against many threads`() async {
        let cache = MemoryCache<NSString, Citizen>(), census = Census()
        cache.countLimit = 1
        await withTaskGroup(of: Void.self) { group in
            for thread in 0..<4 {
                group.addTask {
                    for turn in 0..<2000 { cache.setObject(Citizen(turn, census), forKey: "\(thread) \(turn % 3)" as NSString, cost: 1) }
                }
            }
        }
        #expect(cache.count <= 1 && cache.totalCost == cache.count && census.alive == cache.count)
        #expect(cache.setObject(Citizen(), forKey: "last") && cache.object(forKey: "last") != nil && cache.count == 1)
    }

    /// O(1): counts the comparisons of keys in an insert, because time is no measure in a test.
    @Test func `an insert compares a handful of keys, for any number and cost of entries`() {
        final class Compared: NSObject {
            static let comparisons = Atomic<Int>(0)
            let number: Int
            init(_ number: Int) { self.number = number }
            override var hash: Int { number }
            override func isEqual(_ object: Any?) -> Bool {
                Self.comparisons.add(1, ordering: .relaxed)
                return (object as? Compared)?.number == number
            }
        }
        let cache = MemoryCache<Compared, NSNumber>()
        for number in 0..<20_000 { cache.setObject(1, forKey: Compared(number), cost: number) }
        let before = Compared.comparisons.load(ordering: .relaxed)
        for number in 20_000..<21_000 { cache.setObject(1, forKey: Compared(number), cost: number / 2) }
        #expect(Compared.comparisons.load(ordering: .relaxed) - before < 3000 && cache.count == 21_000)
    }
}

import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Borrows of objects from open shards, without a reference count.
extension CacheVisitTests {
    private func open<Key: Hashable & Sendable, Value: Sendable>(_ cache: PurgeableCache<Key, Value>, _ key: Key) {
        while openShards(cache) == 0 { _ = cache.value(forKey: key) }
    }

    private func isBorrowing() -> Bool { (ReaderSlot.current?.borrowedFrom.pointee.load(ordering: .relaxed) ?? 0) != 0 }
    private func gift() -> UInt { ReaderSlot.current?.given.pointee.load(ordering: .relaxed) ?? 0 }

    @Test func `an open shard lends a value, and counts a hit`() {
        let cache = cache((Int, Object).self)
        cache.insert(Object(1), forKey: 1)
        #expect(cache.withValue(forKey: 1) { _ in isBorrowing() } == false, "not open")
        open(cache, 1)
        let hits = cache.statistics.hits
        #expect(cache.withValue(forKey: 1) { $0.number == 1 && isBorrowing() } == true)
        #expect(!isBorrowing() && cache.statistics.hits == hits + 1 && openShards(cache) == 1)
        #expect(cache.withValue(forKey: 2) { _ in true } == nil && !isBorrowing())
    }

    @Test func `a borrowed value lives until the borrow ends, after any removal, and no longer`() {
        let ways: [(String, @Sendable (PurgeableCache<Int, Object>) -> Void)] = [
            ("replace", { $0.insert(Object(3), forKey: 1) }), ("remove", { $0.removeValue(forKey: 1) }), ("remove all", { $0.removeAll() }),
            ("release", { _ = $0.release(1) }), ("evict", { $0.evict(count: 1) }), ("lower the limit", { $0.limit = 0 }),
            ("purge a tag", { $0.purge(tag: "odd") }),
        ]
        for (name, write) in ways {
            let cache = cache((Int, Object).self), alive = Counter()
            cache.insert(Object(1, alive: alive), forKey: 1, tags: ["odd"])
            open(cache, 1)
            let number = cache.withValue(forKey: 1) { object in
                #expect(isBorrowing(), "\(name)")
                write(cache)
                #expect(alive.value == 1 && gift() != 0, "\(name)")
                return object.number
            }
            #expect(number == 1 && alive.value == 0 && !isBorrowing() && gift() == 0, "\(name)")
        }
    }

    @Test func `a writer does not wait for a borrower, and the borrower ends the removed value`() {
        let cache = cache((Int, Object).self), alive = Counter(), crew = Crew()
        cache.insert(Object(1, alive: alive), forKey: 1)
        open(cache, 1)
        let number = cache.withValue(forKey: 1) { object in
            _ = crew.start(1) { _ in cache.removeValue(forKey: 1) }
            crew.waitForEnd()
            #expect(cache.count == 0 && alive.value == 1)
            return object.number
        }
        #expect(number == 1 && alive.value == 0)
    }

    @Test func `a borrower is given one reference, with any number of closings of the shard`() {
        let cache = cache((Int, Object).self), alive = Counter()
        cache.insert(Object(1, alive: alive), forKey: 1)
        open(cache, 1)
        cache.withValue(forKey: 1) { _ in
            for number in 2...6 {
                cache.insert(Object(number), forKey: number)
                open(cache, 1)
            }
            cache.removeAll()
            // The new object may have the slot and the address of the first one.
            cache.insert(Object(7), forKey: 7)
            open(cache, 7)
            cache.removeAll()
            #expect(alive.value == 1)
        }
        #expect(alive.value == 0 && gift() == 0)
    }

    @Test func `the cache keeps its value after a borrow, and a copy from a borrow outlives the cache's value`() {
        let cache = cache((Int, Object).self), alive = Counter()
        cache.insert(Object(1, alive: alive), forKey: 1)
        open(cache, 1)
        var kept = cache.withValue(forKey: 1) { object in
            cache.insert(Object(2), forKey: 2)
            return copy object
        }
        #expect(alive.value == 1 && cache.value(forKey: 1) === kept && gift() == 0)
        open(cache, 1)
        kept = cache.withValue(forKey: 1) { copy $0 }
        cache.removeAll()
        #expect(kept?.number == 1 && alive.value == 1)
        kept = nil
        #expect(alive.value == 0)
    }

    @Test func `a borrowed value outlives the split of the shard`() {
        let cache = cache((Int, Object).self, shardCount: 8), alive = Counter()
        for number in 0..<100 { cache.insert(Object(number, alive: alive), forKey: number) }
        open(cache, 7)
        let number = cache.withValue(forKey: 7) { object in
            #expect(isBorrowing())
            for number in 100..<5000 { cache.insert(Object(number, alive: alive), forKey: number) }
            for number in 0..<5000 { cache.removeValue(forKey: number) }
            #expect(alive.value == 1)
            return object.number
        }
        #expect(number == 7 && alive.value == 0)
    }

    @Test func `during a borrow a second value is looked up, not borrowed`() {
        let cache = self.cache((Int, Object).self), other = self.cache((String, Object).self)
        cache.insert(Object(1), forKey: 1)
        cache.insert(Object(2), forKey: 2)
        other.insert(Object(3), forKey: "3")
        open(cache, 1)
        open(other, "3")
        let sum = cache.withValue(forKey: 1) { one in
            let borrowedFrom = ReaderSlot.current?.borrowedFrom.pointee.load(ordering: .relaxed)
            let others = cache.withValue(forKey: 2) { two in other.withValue(forKey: "3") { two.number + $0.number } }
            #expect(borrowedFrom != 0 && ReaderSlot.current?.borrowedFrom.pointee.load(ordering: .relaxed) == borrowedFrom)
            return one.number + (others.flatMap { $0 } ?? 0)
        }
        #expect(sum == 6 && openShards(cache) == 1 && openShards(other) == 1)
    }

    @Test func `a throwing borrower ends the borrow`() {
        struct Refusal: Error, Equatable { let number: Int }
        let cache = cache((Int, Object).self), alive = Counter()
        cache.insert(Object(1, alive: alive), forKey: 1)
        open(cache, 1)
        #expect(throws: Refusal(number: 1)) {
            try cache.withValue(forKey: 1) { object throws(Refusal) in
                cache.removeAll()
                throw Refusal(number: object.number)
            }
        }
        #expect(!isBorrowing() && alive.value == 0)
    }

    /// An object whose deinit borrows from a cache.
    final class Last: Sendable {
        let number: Int
        let cache: PurgeableCache<Int, Object>
        let seen: Counter
        init(_ number: Int, _ cache: PurgeableCache<Int, Object>, _ seen: Counter) { (self.number, self.cache, self.seen) = (number, cache, seen) }
        deinit { seen.add(cache.withValue(forKey: 9) { $0.number } ?? 0) }
    }

    @Test func `a deinit at the end of a borrow may borrow`() {
        let other = self.cache((Int, Object).self), seen = Counter(), cache = self.cache((Int, (Last, Last)).self)
        other.insert(Object(9), forKey: 9)
        open(other, 9)
        cache.insert((Last(1, other, seen), Last(2, other, seen)), forKey: 1)
        open(cache, 1)
        let sum = cache.withValue(forKey: 1) { pair in
            #expect(isBorrowing())
            cache.removeAll()
            return pair.0.number + pair.1.number
        }
        #expect(sum == 3 && seen.value == 18 && openShards(other) == 1)
    }

    struct Weak: Sendable { weak let object: Object? }

    @Test func `a value too large for a reader slot or bound to an address is copied out`() {
        typealias Large = (Object, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int)
        let large = cache((Int, Large).self), weak = cache((Int, Weak).self), object = Object(5)
        large.insert((object, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), forKey: 1)
        weak.insert(Weak(object: object), forKey: 1)
        open(large, 1)
        open(weak, 1)
        #expect(large.withValue(forKey: 1) { isBorrowing() ? 0 : $0.0.number + $0.10 } == 15)
        #expect(weak.withValue(forKey: 1) { isBorrowing() ? 0 : $0.object?.number } == 5)
    }

    @Test func `Strings, arrays and existentials are borrowed`() {
        let texts = cache((Int, String).self), arrays = cache((Int, [Object]).self), boxes = cache((Int, any Sendable).self)
        let text = "a text that does not fit into the String itself"
        texts.insert(text + "!", forKey: 1)
        arrays.insert([Object(1), Object(2)], forKey: 1)
        boxes.insert([text, text], forKey: 1)
        open(texts, 1)
        open(arrays, 1)
        open(boxes, 1)
        let kept = texts.withValue(forKey: 1) { text in
            texts.removeAll()
            return isBorrowing() ? copy text : ""
        }
        #expect(kept == text + "!")
        let sum = arrays.withValue(forKey: 1) { objects in
            arrays.removeAll()
            return isBorrowing() ? objects.reduce(0) { $0 + $1.number } : 0
        }
        #expect(sum == 3)
        let box = boxes.withValue(forKey: 1) { box in
            boxes.removeAll()
            return isBorrowing() ? box as? [String] : nil
        }
        #expect(box == [text, text])
    }

    @Test func `borrowed values are right, and none leaks, while threads borrow, write and end`() {
        for seed in seeds(0..<4) {
            let alive = Counter(), wrong = Counter(), borrowed = Counter()
            let caches = (0..<2).map { _ in cache((Int, Object).self, opensAfter: 3, limit: 100, shardCount: 4) }
            for _ in 0..<8 {
                let crew = Crew()
                _ = crew.start(4) { thread in
                    var random = SeededGenerator(seed: seed &* 100 &+ UInt64(thread))
                    for step in 0..<2000 {
                        let number = Int.random(in: 0..<150, using: &random), cache = caches[step % 2]
                        let isWriting = Int.random(in: 0..<40, using: &random) == 0
                        if thread == 0, step % 50 < 2 {
                            cache.insert(Object(number, alive: alive), forKey: number)
                        } else if thread == 1, step % 97 == 0 {
                            if step % 5 == 0 { cache.removeAll() } else { cache.removeValue(forKey: number) }
                        } else {
                            cache.withValue(forKey: number) { object in
                                if isBorrowing() { borrowed.add(1) }
                                if isWriting { cache.removeValue(forKey: number) }
                                if object.number != number { wrong.add(1) }
                            }
                        }
                    }
                }
                crew.waitForEnd()
            }
            #expect(wrong.value == 0 && borrowed.value > 0, "seed \(seed)")
            #expect(alive.value == caches.reduce(0) { $0 + $1.count }, "an object in no cache is deallocated, seed \(seed)")
        }
    }
}

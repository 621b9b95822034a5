import Foundation
import Plimsoll
import PlimsollFoundation
import PlimsollTesting
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(5))) struct MemoryCacheTests {
    @Test func `the calls of NSCache work`() {
        let legacy = MemoryCache<NSString, NSData>()
        let data = NSData(data: Data([1, 2, 3]))
        legacy.name = "legacy"
        legacy.setObject(data, forKey: "a")
        legacy.setObject(data, forKey: "b", cost: 3)
        #expect(legacy.object(forKey: "a") === data && legacy.object(forKey: "b") === data && legacy.object(forKey: "c") == nil)
        #expect(legacy.name == "legacy" && legacy.count == 2 && legacy.totalCost == 3)
        #expect(legacy.countLimit == 0 && legacy.totalCostLimit == 0 && legacy.evictsObjectsWithDiscardedContent && legacy.delegate == nil)
        legacy.removeObject(forKey: "a")
        legacy.removeObject(forKey: "a")
        #expect(legacy.object(forKey: "a") == nil && legacy.count == 1)
        legacy.removeAllObjects()
        #expect(legacy.object(forKey: "b") == nil && legacy.count == 0 && legacy.totalCost == 0 && legacy.heldBytes == .zero)
        let statistics = legacy.statistics
        #expect(statistics.hits == 2 && statistics.misses == 3 && statistics.evictions == 0 && statistics.purged == 0)
    }

    // MARK: Keys

    /// An object with an identity and nothing else.
    final class Plain {}

    /// Equal by `==`, and no NSObject.
    final class Name: Hashable {
        let text: String
        init(_ text: String) { self.text = text }
        static func == (left: Name, right: Name) -> Bool { left.text == right.text }
        func hash(into hasher: inout Hasher) { hasher.combine(text) }
    }

    /// Equal by `isEqual(_:)`; all of them have one hash.
    final class Wrapper: NSObject {
        let text: String
        init(_ text: String) { self.text = text }
        override var hash: Int { 7 }
        override func isEqual(_ object: Any?) -> Bool { (object as? Wrapper)?.text == text }
    }

    @Test func `Foundation keys are equal by isEqual, not by identity`() {
        let texts = MemoryCache<NSString, NSNumber>()
        let key = NSString(string: "thumb-"), mutable = NSMutableString(string: "thumb-7")
        texts.setObject(7, forKey: NSString(string: key.appending("7")))
        #expect(texts.object(forKey: NSString(string: "thumb-7")) == 7 && texts.object(forKey: mutable) == 7)
        texts.setObject(8, forKey: mutable)
        #expect(texts.count == 1 && texts.object(forKey: "thumb-7") == 8)

        let numbers = MemoryCache<NSNumber, NSNumber>()
        numbers.setObject(1, forKey: NSNumber(value: 1 << 40))
        #expect(numbers.object(forKey: NSNumber(value: 1 << 40)) == 1 && numbers.object(forKey: NSNumber(value: 2)) == nil)

        let wrappers = MemoryCache<Wrapper, NSNumber>()
        for number in 0..<20 { wrappers.setObject(NSNumber(value: number), forKey: Wrapper("\(number)")) }
        #expect((0..<20).allSatisfy { wrappers.object(forKey: Wrapper("\($0)")) == NSNumber(value: $0) } && wrappers.count == 20)

        let objects = MemoryCache<NSObject, NSNumber>(), one = NSObject(), other = NSObject()
        objects.setObject(1, forKey: one)
        #expect(objects.object(forKey: one) == 1 && objects.object(forKey: other) == nil && objects.object(forKey: NSString("a")) == nil)
    }

    @Test func `objects outside NSObject are equal by ==, else by identity`() {
        let plain = MemoryCache<Plain, NSNumber>(), one = Plain(), other = Plain()
        plain.setObject(1, forKey: one)
        plain.setObject(2, forKey: other)
        #expect(plain.object(forKey: one) == 1 && plain.object(forKey: other) == 2 && plain.count == 2)

        let names = MemoryCache<Name, NSNumber>()
        names.setObject(1, forKey: Name("a"))
        #expect(names.object(forKey: Name("a")) == 1 && names.object(forKey: Name("b")) == nil)
    }

    @Test func `one cache takes keys of any class, and a generic cache takes keys of unknown class`() {
        let any = MemoryCache<AnyObject, AnyObject>(), plain = Plain(), text = NSString("value")
        let keys: [AnyObject] = [NSString("a"), NSNumber(value: 1), plain, Name("a"), Wrapper("a")]
        for key in keys { any.setObject(key, forKey: key) }
        let same: [AnyObject] = [NSString("a"), NSNumber(value: 1), plain, Name("a"), Wrapper("a")]
        for (key, equal) in zip(keys, same) { #expect(any.object(forKey: equal) === key) }
        #expect(any.count == 5 && any.object(forKey: Plain()) == nil && any.object(forKey: NSString("b")) == nil)

        func cache<Key: AnyObject, Value: AnyObject>(_: Key.Type, _: Value.Type) -> MemoryCache<Key, Value> { MemoryCache() }
        let generic = cache(NSString.self, NSString.self)
        generic.setObject(text, forKey: NSString(string: "a"))
        #expect(generic.object(forKey: NSString(string: "a")) === text && generic.object(forKey: "b") == nil)
    }

    @Test func `keys and values may be other than objects`() {
        let numbers = MemoryCache<String, Int>(), bytes = MemoryCache<UUID, [UInt8]>(), id = UUID()
        numbers.setObject(7, forKey: "seven")
        bytes.setObject([1, 2], forKey: id, cost: 2)
        #expect(numbers.object(forKey: "seven") == 7 && bytes.object(forKey: id) == [1, 2] && bytes.object(forKey: UUID()) == nil)
    }

    // MARK: Weight

    @Test func `T26 an object set without a cost counts under pressure, and toward no limit`() {
        func held<Value>(_ value: Value, cost: Int = 0) -> Int {
            let cache = MemoryCache<String, Value>()
            cache.totalCostLimit = 100
            cache.setObject(value, forKey: "a", cost: cost)
            #expect(cache.count == 1 && cache.totalCost == max(0, cost))
            return cache.heldBytes
        }
        let data = Data(count: 1 << 20)
        #expect(held(data) == (1 << 20) + 64)
        #expect(held(NSData(data: data)) == (1 << 20) + 64 && held(NSMutableData(data: data) as NSData) == (1 << 20) + 64)
        #expect(held(data as Any) == (1 << 20) + 64 && held(NSData(data: data) as AnyObject) == (1 << 20) + 64)
        #expect(held("12345") == 69 && held(NSString("12345")) == 74 && held([UInt8](repeating: 0, count: 5)) == 69)
        #expect(held(PurgeableData(length: 4096)) == 4160 && held(Plain()) == 64 && held(7) == 64)
        #expect(held(data, cost: 12) == 12 && held("a", cost: -5) == 65)

        let own = MemoryCache<String, Int>(byteCount: { $0 })
        own.setObject(500, forKey: "a")
        own.setObject(0, forKey: "b")
        own.setObject(-7, forKey: "c")
        #expect(own.heldBytes == 500 && own.release(1) > 0)
    }

    @Test func `a manager releases the coldest entries, and no more than needed`() {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let cache = MemoryCache<NSString, NSData>()
        cache.name = "thumbnails"
        let registration = manager.register(cache)
        for number in 0..<100 { cache.setObject(NSData(), forKey: "\(number)" as NSString, cost: 1000) }
        for number in 0..<20 { _ = cache.object(forKey: "\(number)" as NSString) }
        let report: ActionReport = manager.release(50_000)
        #expect(report.released == .bytes(50_000) && cache.count == 50 && cache.heldBytes == 50_000 && cache.totalCost == 50_000)
        #expect((0..<20).allSatisfy { cache.object(forKey: "\($0)" as NSString) != nil })
        #expect(cache.statistics.purged == 50 && cache.statistics.evictions == 0)
        registration.cancel()
    }

    @Test func `a registered cache releases under pressure without a call, and does not grow without room`() async throws {
        let source = ScriptedPressureSource(), manager = ResourceManager(source: source, clock: ManualClock())
        let cache = MemoryCache<NSString, NSData>(), empty = MemoryCache<NSString, NSData>()
        for number in 0..<100 { cache.setObject(NSData(), forKey: "\(number)" as NSString, cost: 1 << 20) }
        manager.register(cache)
        manager.register(empty)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            source.push(usage: .mebibytes(1020), limit: .gibibytes(1))
            await source.waitUntilIdle()
            // The pass is over once the report exists.
            await until { manager.reports.contains(where: { $0.action == .release }) }
            #expect(cache.statistics.purged > 0 && cache.heldBytes == cache.totalCost)
            #expect(!empty.setObject(NSData(), forKey: "a", cost: 1 << 30) && empty.count == 0 && empty.totalCost == 0)
            group.cancelAll()
            try await group.waitForAll()
        }
        #expect(empty.setObject(NSData(), forKey: "a", cost: 1 << 30) && empty.totalCost == 1 << 30)
    }
}

extension NSString {
    /// Creates a separate object for a text. A literal may be the same object each time.
    convenience init(_ text: String) { self.init(string: text) }
}

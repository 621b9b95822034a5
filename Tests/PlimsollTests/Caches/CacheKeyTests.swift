import PlimsollTesting
import Testing

@testable import Plimsoll

/// Kinds of keys and values, among them keys that collide on purpose.
@Suite struct CacheKeyTests {
    /// A key whose hash is the same for all keys.
    struct Colliding: Hashable {
        let number: Int
        func hash(into hasher: inout Hasher) {}
    }

    /// A key with one of four hashes.
    struct Quarter: Hashable {
        let name: String
        init(_ number: Int) { name = "number \(number)" }
        func hash(into hasher: inout Hasher) { hasher.combine(name.utf8.last.map { $0 & 3 }) }
    }

    struct Empty: Hashable {}

    enum Shape: Hashable, Sendable {
        case point
        case circle(Double)
        case named(String, [Int])
        indirect case inside(Shape)
    }

    /// Nine bytes, and eleven with the key, without alignment.
    struct Odd: Hashable, Sendable {
        var a: UInt8, b: UInt16, c: UInt32, d: UInt8
        init(_ number: Int) { (a, b, c, d) = (UInt8(number & 0xFF), UInt16(number & 0xFFFF), UInt32(number), UInt8(~number & 0xFF)) }
    }

    struct Three: Hashable {
        var bytes: (UInt8, UInt8, UInt8)
        init(_ number: Int) { bytes = (UInt8(number & 0xFF), UInt8(number >> 8 & 0xFF), UInt8(number >> 16 & 0xFF)) }
        static func == (left: Three, right: Three) -> Bool { left.bytes == right.bytes }
        func hash(into hasher: inout Hasher) { hasher.combine(Int(bytes.0) | Int(bytes.1) << 8) }
    }

    /// A value of 1 KiB without a reference.
    struct Kibibyte: Hashable {
        typealias Eight = SIMD8<UInt64>
        var words: (Eight, Eight, Eight, Eight, Eight, Eight, Eight, Eight, Eight, Eight, Eight, Eight, Eight, Eight, Eight, Eight)
        init(_ number: Int) {
            let one = Eight(repeating: UInt64(number))
            words = (one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, ~one)
        }
        static func == (left: Kibibyte, right: Kibibyte) -> Bool {
            withUnsafeBytes(of: left) { left in withUnsafeBytes(of: right) { left.elementsEqual($0) } }
        }
        func hash(into hasher: inout Hasher) { hasher.combine(words.0) }
    }

    /// Goes through all operations with `count` keys.
    private func exercise<Key: Hashable & Sendable, Value: Equatable & Sendable>(
        _ count: Int, shards: Int, _ key: (Int) -> Key, _ value: (Int) -> Value, location: SourceLocation = #_sourceLocation
    ) {
        let cache = PurgeableCache<Key, Value>("keys", limit: .bytes(count), shardCount: shards, cost: { _, _ in 1 })
        for number in 0..<count where !cache.insert(value(number), forKey: key(number)) { Issue.record("refused", sourceLocation: location) }
        func found(_ step: Int) -> Int { (0..<count).count { cache.value(forKey: key($0)) == value($0 + step) } }
        #expect(cache.count == count && found(0) == count, sourceLocation: location)
        for number in 0..<count { cache.insert(value(number + 1), forKey: key(number)) }
        #expect(cache.count == count && found(1) == count && cache.byteCount == count, sourceLocation: location)
        for number in stride(from: 0, to: count, by: 3) {
            #expect(cache.removeValue(forKey: key(number)) == value(number + 1), sourceLocation: location)
        }
        let removed = (count + 2) / 3
        #expect(cache.count == count - removed && found(1) == count - removed, sourceLocation: location)
        for number in stride(from: 0, to: count, by: 3) { cache.insert(value(number + 1), forKey: key(number)) }
        #expect(found(1) == count, sourceLocation: location)
        #expect(cache.release(count / 2) == count / 2 && found(1) == count - count / 2, sourceLocation: location)
        cache.removeAll()
        #expect(cache.count == 0 && found(1) == 0, sourceLocation: location)
    }

    @Test(arguments: [1, 64]) func `thousands of keys with one hash are kept apart`(shards: Int) {
        exercise(1300, shards: shards, { Colliding(number: $0) }, { $0 })
    }

    @Test(arguments: [1, 64]) func `thousands of keys with four hashes are kept apart`(shards: Int) {
        exercise(2100, shards: shards, { Quarter($0) }, { "value \($0)" })
    }

    @Test(arguments: [1, 64]) func `keys of every kind work`(shards: Int) {
        exercise(1200, shards: shards, { "text \($0), too long to be small" }, { "\($0)" })
        exercise(1200, shards: shards, { Int32($0 - 600) }, { $0 })
        exercise(1200, shards: shards, { UInt32($0) }, { UInt8($0 & 0xFF) })
        exercise(256, shards: shards, { UInt8($0) }, { UInt16($0) })
        exercise(1200, shards: shards, { UInt16($0) }, { $0 % 2 == 0 })
        exercise(1, shards: shards, { _ in Empty() }, { $0 })
        exercise(1200, shards: shards, { $0 % 2 == 0 ? .circle(Double($0)) : .inside(.named("shape", [$0])) as Shape }, { Shape.circle(Double($0)) })
        exercise(1200, shards: shards, { Odd($0) }, { Odd($0) })
        exercise(1200, shards: shards, { Three($0) }, { Three($0) })
        exercise(1200, shards: shards, { SIMD4<Float>(repeating: Float($0)) }, { SIMD4<Float>(repeating: Float($0)) })
        exercise(1200, shards: shards, { $0 == 0 ? nil : Optional($0) }, { Optional($0) })
        exercise(1200, shards: shards, { Int64.min + Int64($0) }, { -$0 })
    }

    @Test(arguments: [1, 64]) func `values of every size work`(shards: Int) {
        exercise(800, shards: shards, { $0 }, { Kibibyte($0) })
        exercise(800, shards: shards, { Kibibyte($0) }, { UInt8($0 & 0xFF) })
        exercise(1200, shards: shards, { $0 }, { _ in Empty() })
        exercise(1, shards: shards, { _ in Empty() }, { _ in Empty() })
        exercise(1200, shards: shards, { UInt16($0) }, { SIMD4<Float>(repeating: Float($0)) })
        exercise(1200, shards: shards, { $0 }, { [$0] })
        exercise(1200, shards: shards, { $0 }, { Shape.named("\($0)", []) })
        exercise(1200, shards: shards, { $0 }, { Box($0, "boxed \($0)") })
    }

    /// A value that an existential stores in a box.
    struct Box: Equatable, Sendable {
        let number: Int
        let any: any Sendable
        init(_ number: Int, _ any: any Sendable) { (self.number, self.any) = (number, any) }
        static func == (left: Box, right: Box) -> Bool { left.number == right.number }
    }
}

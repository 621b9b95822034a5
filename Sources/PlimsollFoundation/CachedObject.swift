import Foundation

/// An object with its cost.
// Unchecked: the cache passes references on and reads no object. The code that shares an object through a cache
// asserts that several threads may use the object, as with NSCache. Foundation cannot declare that for NSData, which
// has a mutable subclass.
@usableFromInline @frozen struct CachedObject<Value>: @unchecked Sendable {
    @usableFromInline let value: Value
    /// The stated cost, clamped by `CacheAccounting.counted`.
    @usableFromInline let cost: Int
    @usableFromInline let isDiscardable: Bool

    @usableFromInline
    init(_ value: Value, cost: Int) {
        self.value = value
        self.cost = CacheAccounting.counted(cost)
        // Check once: the check costs more than a look-up. Compare the type: a cast of the value would bridge.
        isDiscardable = type(of: value as Any) is any DiscardableContent.Type
    }

    var discardable: (any DiscardableContent)? { isDiscardable ? value as? any DiscardableContent : nil }
}

/// Estimates the bytes of an object without a stated size: the length of bytes and text, plus 64 bytes for the
/// object. Referenced objects are not counted.
@usableFromInline
func guessedByteCount<Object>(_ object: Object) -> Int {
    // Compare types before any cast: `as?` alone bridges, and turns an NSData into Data byte by byte (57 ms per MB,
    // Swift 6.3).
    let contents =
        switch type(of: object as Any) {
        case is NSData.Type: (object as! NSData).length
        case is NSString.Type: (object as! NSString).length * MemoryLayout<UInt16>.size
        case is PurgeableData.Type: (object as! PurgeableData).length
        case is Data.Type: (object as! Data).count
        case is String.Type: (object as! String).utf8.count
        case is [UInt8].Type: (object as! [UInt8]).count
        default: 0
        }
    return contents + 64
}

// Inlinable, so that client code is specialised for its keys and values.

/// Hashing and equality of the keys of a cache. Chosen by type once per cache, so that a look-up needs no casts.
@usableFromInline
protocol KeyRules<Key>: SendableMetatype {
    associatedtype Key
    static func hash(of key: Key) -> Int
    static func areEqual(_ left: Key, _ right: Key) -> Bool
}

/// Uses the keys' own `==`, which for Foundation's objects is `isEqual(_:)`.
@usableFromInline
enum HashableKeys<Key: Hashable>: KeyRules {
    @usableFromInline static func hash(of key: Key) -> Int { key.hashValue }
    @usableFromInline static func areEqual(_ left: Key, _ right: Key) -> Bool { left == right }
}

/// Decides by the dynamic type of each object: `hash` and `isEqual(_:)` of an `NSObject`, `==` of a `Hashable` type,
/// otherwise identity.
@usableFromInline
enum ObjectKeys<Key: AnyObject>: KeyRules {
    @usableFromInline
    static func hash(of key: Key) -> Int {
        if let key = key as? NSObject { return key.hash }
        return (key as? AnyHashable)?.hashValue ?? ObjectIdentifier(key).hashValue
    }

    @usableFromInline
    static func areEqual(_ left: Key, _ right: Key) -> Bool {
        if left === right { return true }
        if let left = left as? NSObject { return left.isEqual(right) }
        guard let left = left as? AnyHashable, let right = right as? AnyHashable else { return false }
        return left == right
    }
}

/// A key with its hash, which is computed once per call and outside every lock.
// Unchecked: keys are only compared and released, on any thread. Keys must be safe for that, as with NSCache.
@usableFromInline @frozen struct CacheKey<Key>: Hashable, @unchecked Sendable {
    @usableFromInline let key: Key
    @usableFromInline let hash: Int
    @usableFromInline let rules: any KeyRules<Key>.Type

    @inlinable
    init(_ key: Key, _ rules: any KeyRules<Key>.Type) {
        self.key = key
        self.rules = rules
        hash = rules.hash(of: key)
    }

    @inlinable
    func hash(into hasher: inout Hasher) { hasher.combine(hash) }

    @inlinable
    static func == (left: CacheKey, right: CacheKey) -> Bool {
        left.hash == right.hash && left.rules.areEqual(left.key, right.key)
    }
}

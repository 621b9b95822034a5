import Foundation

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

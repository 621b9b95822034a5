import Foundation

// Open to inlining, so that code that uses a cache is compiled for its keys and values.

/// How the keys of a cache are told apart. Chosen by type once a cache, so that a look-up casts nothing.
@usableFromInline
protocol KeyRules<Key>: SendableMetatype {
    associatedtype Key
    static func hash(of key: Key) -> Int
    static func areEqual(_ left: Key, _ right: Key) -> Bool
}

/// By the keys' own `==`, which for Foundation's objects is `isEqual(_:)`.
@usableFromInline
enum HashableKeys<Key: Hashable>: KeyRules {
    @usableFromInline static func hash(of key: Key) -> Int { key.hashValue }
    @usableFromInline static func areEqual(_ left: Key, _ right: Key) -> Bool { left == right }
}

/// By what each object turns out to be: `hash` and `isEqual(_:)` of an `NSObject`, `==` of what is `Hashable`, otherwise identity.
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

/// A key with its hash, which is asked for once a call and outside every lock.
// Unchecked: keys are only compared and released, on whichever thread; that must be safe of a key, as it must for NSCache.
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
    static func == (left: CacheKey, right: CacheKey) -> Bool { left.hash == right.hash && left.rules.areEqual(left.key, right.key) }
}

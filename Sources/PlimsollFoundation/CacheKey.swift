import Foundation

/// How the keys of a cache are told apart. Chosen by type once a cache, so that a look-up casts nothing.
protocol KeyRules<Key>: SendableMetatype {
    associatedtype Key
    static func hash(of key: Key) -> Int
    static func areEqual(_ left: Key, _ right: Key) -> Bool
}

/// By the keys' own `==`, which for Foundation's objects is `isEqual(_:)`.
enum HashableKeys<Key: Hashable>: KeyRules {
    static func hash(of key: Key) -> Int { key.hashValue }
    static func areEqual(_ left: Key, _ right: Key) -> Bool { left == right }
}

/// By what each object turns out to be: `hash` and `isEqual(_:)` of an `NSObject`, `==` of what is `Hashable`, otherwise identity.
enum ObjectKeys<Key: AnyObject>: KeyRules {
    static func hash(of key: Key) -> Int {
        if let key = key as? NSObject { return key.hash }
        return (key as? AnyHashable)?.hashValue ?? ObjectIdentifier(key).hashValue
    }

    static func areEqual(_ left: Key, _ right: Key) -> Bool {
        if left === right { return true }
        if let left = left as? NSObject { return left.isEqual(right) }
        guard let left = left as? AnyHashable, let right = right as? AnyHashable else { return false }
        return left == right
    }
}

/// A key with its hash, which is asked for once a call and outside every lock.
// Unchecked: keys are only compared and released, on whichever thread; that must be safe of a key, as it must for NSCache.
struct CacheKey<Key>: Hashable, @unchecked Sendable {
    private let key: Key
    private let hash: Int
    private let rules: any KeyRules<Key>.Type

    init(_ key: Key, _ rules: any KeyRules<Key>.Type) {
        self.key = key
        self.rules = rules
        hash = rules.hash(of: key)
    }

    func hash(into hasher: inout Hasher) { hasher.combine(hash) }

    static func == (left: CacheKey, right: CacheKey) -> Bool { left.hash == right.hash && left.rules.areEqual(left.key, right.key) }
}

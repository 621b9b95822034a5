import Foundation

/// `NSCache`. Keys and values are objects made beforehand, so that only the time of the cache counts.
///
/// Unchecked: Foundation's Linux version takes a lock in every call but is not marked as Sendable.
struct FoundationStore<KeyObject: NSObject, ValueObject: AnyObject>: KeyedStore, @unchecked Sendable {
    private let cache = NSCache<KeyObject, ValueObject>()

    init(capacity: Int) { cache.countLimit = capacity }

    func value(forKey key: Constant<KeyObject>) -> Constant<ValueObject>? {
        cache.object(forKey: key.object).map(Constant.init)
    }
    func insert(_ value: Constant<ValueObject>, forKey key: Constant<KeyObject>) {
        cache.setObject(value.object, forKey: key.object)
    }
}

/// An object that no thread changes. The object's class cannot promise that: hence unchecked.
struct Constant<Object: AnyObject>: Weighable, @unchecked Sendable {
    let object: Object

    init(_ object: Object) { self.object = object }

    /// A constant: bridging is not part of the cache's cost.
    var weight: Int { 1 }
}

extension Constant: Equatable where Object: NSObject {
    static func == (left: Constant, right: Constant) -> Bool { left.object.isEqual(right.object) }
}

extension Constant: Hashable where Object: NSObject {
    func hash(into hasher: inout Hasher) { hasher.combine(object) }
}

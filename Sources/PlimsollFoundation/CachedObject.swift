import Foundation

/// An object with its cost.
// Unchecked: the cache passes references on and reads no object. The code that shares an object through a cache
// asserts that several threads may use the object, as with NSCache. Foundation cannot declare that for NSData, which
// has a mutable subclass.
@usableFromInline @frozen struct CachedObject<Value>: @unchecked Sendable {
    @usableFromInline let value: Value
    /// The stated cost, clamped by `CacheBooks.counted`.
    @usableFromInline let cost: Int
    @usableFromInline let isDiscardable: Bool

    @usableFromInline
    init(_ value: Value, cost: Int) {
        self.value = value
        self.cost = CacheBooks.counted(cost)
        // Check once: the check costs more than a look-up. Compare the type: a cast of the value would bridge.
        isDiscardable = type(of: value as Any) is any DiscardableContent.Type
    }

    /// The object as discardable content; `nil` for other objects.
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

import Foundation

/// An object with its cost, on its way from whoever sets it to whoever asks for it.
// Unchecked: the cache hands references on and looks into no object. That an object may be used by several threads is what who shares it by a cache says of it, as
// with NSCache; Foundation cannot say it of NSData, which has a mutable subclass.
@usableFromInline @frozen struct CachedObject<Value>: @unchecked Sendable {
    @usableFromInline let value: Value
    /// What was stated, as it counts.
    @usableFromInline let cost: Int
    @usableFromInline let isDiscardable: Bool

    @usableFromInline
    init(_ value: Value, cost: Int) {
        self.value = value
        self.cost = CacheBooks.counted(cost)
        // Asked once, since asking costs more than a look-up; and of the type, since a value would be bridged.
        isDiscardable = type(of: value as Any) is any DiscardableContent.Type
    }

    /// The object, if it can do without its content.
    var discardable: (any DiscardableContent)? { isDiscardable ? value as? any DiscardableContent : nil }
}

/// What an object is taken to hold if nobody says: bytes and text by their length, and 64 bytes for itself; what it refers to is unknown.
@usableFromInline
func guessedByteCount<Object>(_ object: Object) -> Int {
    // Types are compared before anything is cast: `as?` alone bridges, and makes Data of an NSData byte by byte (57 ms a MB, Swift 6.3).
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

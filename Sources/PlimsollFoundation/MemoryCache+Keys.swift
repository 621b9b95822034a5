public import Plimsoll

// Three initialisers for one cache: `NSString` is both an object and `Hashable`, and the last initialiser resolves
// the ambiguity.

extension MemoryCache where Key: Hashable {
    /// Creates an empty cache without limits.
    ///
    /// - Parameters:
    ///   - rebuildCost: cost of making an object again.
    ///   - byteCount: bytes of an object set without a cost, used under memory pressure. By default the length of
    ///     data and text, plus 64.
    public convenience init(
        rebuildCost: RebuildCost = .cheap, byteCount: @escaping @Sendable (Value) -> Int = { guessedByteCount($0) }
    ) {
        self.init(HashableKeys<Key>.self, rebuildCost, byteCount)
    }
}

extension MemoryCache where Key: AnyObject {
    /// Creates an empty cache without limits. Keys are compared by their dynamic type: `isEqual(_:)`, `==`, or
    /// identity.
    ///
    /// - Parameters:
    ///   - rebuildCost: cost of making an object again.
    ///   - byteCount: bytes of an object set without a cost, used under memory pressure. By default the length of
    ///     data and text, plus 64.
    public convenience init(
        rebuildCost: RebuildCost = .cheap, byteCount: @escaping @Sendable (Value) -> Int = { guessedByteCount($0) }
    ) {
        self.init(ObjectKeys<Key>.self, rebuildCost, byteCount)
    }
}

extension MemoryCache where Key: AnyObject & Hashable {
    /// Creates an empty cache without limits.
    ///
    /// - Parameters:
    ///   - rebuildCost: cost of making an object again.
    ///   - byteCount: bytes of an object set without a cost, used under memory pressure. By default the length of
    ///     data and text, plus 64.
    public convenience init(
        rebuildCost: RebuildCost = .cheap, byteCount: @escaping @Sendable (Value) -> Int = { guessedByteCount($0) }
    ) {
        self.init(HashableKeys<Key>.self, rebuildCost, byteCount)
    }
}

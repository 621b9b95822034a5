public import Plimsoll

// Three ways to be made, and one cache: `NSString` is both an object and `Hashable`, and the last one is for it.

extension MemoryCache where Key: Hashable {
    /// An empty cache without limits.
    ///
    /// - Parameters:
    ///   - rebuildCost: what it costs to make an object again.
    ///   - byteCount: bytes an object stands for under memory pressure when it is set without a cost. By default the length of data and text, and 64.
    public convenience init(rebuildCost: RebuildCost = .cheap, byteCount: @escaping @Sendable (Value) -> Int = { guessedByteCount($0) }) {
        self.init(HashableKeys<Key>.self, rebuildCost, byteCount)
    }
}

extension MemoryCache where Key: AnyObject {
    /// An empty cache without limits, whose keys are told apart by what they turn out to be: `isEqual(_:)`, `==`, or identity.
    ///
    /// - Parameters:
    ///   - rebuildCost: what it costs to make an object again.
    ///   - byteCount: bytes an object stands for under memory pressure when it is set without a cost. By default the length of data and text, and 64.
    public convenience init(rebuildCost: RebuildCost = .cheap, byteCount: @escaping @Sendable (Value) -> Int = { guessedByteCount($0) }) {
        self.init(ObjectKeys<Key>.self, rebuildCost, byteCount)
    }
}

extension MemoryCache where Key: AnyObject & Hashable {
    /// An empty cache without limits.
    ///
    /// - Parameters:
    ///   - rebuildCost: what it costs to make an object again.
    ///   - byteCount: bytes an object stands for under memory pressure when it is set without a cost. By default the length of data and text, and 64.
    public convenience init(rebuildCost: RebuildCost = .cheap, byteCount: @escaping @Sendable (Value) -> Int = { guessedByteCount($0) }) {
        self.init(HashableKeys<Key>.self, rebuildCost, byteCount)
    }
}

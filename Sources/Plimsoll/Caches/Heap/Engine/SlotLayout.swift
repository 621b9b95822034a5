/// Layout of key and value in a pair.
@usableFromInline
enum SlotLayout<Key, Value> {
    @inlinable @inline(__always)
    static var valueOffset: Int { align(MemoryLayout<Key>.size, MemoryLayout<Value>.alignment) }
    @inlinable @inline(__always)
    static var pairSize: Int {
        align(
            valueOffset &+ MemoryLayout<Value>.size, max(4, MemoryLayout<Key>.alignment, MemoryLayout<Value>.alignment))
    }
    /// True if keys and values are plain bits, which may be copied while they change and need no destruction.
    @inlinable @inline(__always)
    static var isTrivial: Bool { _isPOD(Key.self) && _isPOD(Value.self) }

    @inlinable @inline(__always)
    static func align(_ offset: Int, _ alignment: Int) -> Int { (offset &+ alignment &- 1) & ~(alignment &- 1) }

    @inlinable @inline(__always)
    static func key(_ pair: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Key> {
        pair.assumingMemoryBound(to: Key.self)
    }
    @inlinable @inline(__always)
    static func value(_ pair: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Value> {
        (pair + valueOffset).assumingMemoryBound(to: Value.self)
    }

    /// Writes key and value into an empty pair.
    @inlinable @inline(__always)
    static func fill(_ pair: UnsafeMutableRawPointer, _ key: Key, _ value: Value) {
        if isTrivial {
            withUnsafeBytes(of: key) {
                CacheWords.write(
                    $0.count, MemoryLayout<Key>.alignment, from: $0.baseAddress.unsafelyUnwrapped, to: pair)
            }
            withUnsafeBytes(of: value) {
                CacheWords.write(
                    $0.count, MemoryLayout<Value>.alignment, from: $0.baseAddress.unsafelyUnwrapped,
                    to: pair + valueOffset)
            }
        } else {
            Self.key(pair).initialize(to: key)
            Self.value(pair).initialize(to: value)
        }
    }

    /// Moves key and value into an empty pair.
    @inline(__always)
    static func move(_ from: UnsafeMutableRawPointer, _ to: UnsafeMutableRawPointer) {
        if isTrivial {
            CacheWords.write(
                pairSize, max(4, MemoryLayout<Key>.alignment, MemoryLayout<Value>.alignment), from: from, to: to)
        } else {
            key(to).moveInitialize(from: key(from), count: 1)
            value(to).moveInitialize(from: value(from), count: 1)
        }
    }

    /// Returns an empty shard for such pairs.
    static func shard(depth: UInt32) -> CacheShard {
        let mover: PairMove = { from, to in move(from, to) }
        let isBits = _isBitwiseTakable(Key.self) && _isBitwiseTakable(Value.self)
        return CacheShard(pairSize: pairSize, hasReaders: isTrivial, depth: depth, move: isBits ? nil : mover)
    }

    /// Destroys key and value.
    @inlinable @inline(__always)
    static func destroy(_ pair: UnsafeMutableRawPointer) {
        guard !isTrivial else { return }
        key(pair).deinitialize(count: 1)
        value(pair).deinitialize(count: 1)
    }
}

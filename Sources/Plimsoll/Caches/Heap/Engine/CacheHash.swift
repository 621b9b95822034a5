/// A hash of 32 bits: the highest bits select the shard, the lowest the cell in the shard's index.
///
/// Integers of 32 and 64 bits go through one multiplication with a per-cache seed (the "folded multiply" of wyhash
/// and of Rust's foldhash). Without the seed, an attacker cannot choose keys that collide. All other keys go
/// through `Hasher`, which costs some 8 ns more.
@frozen @usableFromInline
struct CacheHash: Sendable {
    @usableFromInline let seed: UInt64

    @inlinable
    init(seed: UInt64) { self.seed = seed }

    @inlinable @inline(__always)
    func of<Key: Hashable>(_ key: Key) -> UInt32 {
        // Resolved when specialized: one of these branches is left.
        if Key.self == UInt64.self || Key.self == Int.self || Key.self == UInt.self || Key.self == Int64.self {
            return fold(unsafeBitCast(key, to: UInt64.self))
        }
        if Key.self == UInt32.self || Key.self == Int32.self {
            return fold(UInt64(unsafeBitCast(key, to: UInt32.self)))
        }
        return UInt32(truncatingIfNeeded: key._rawHashValue(seed: Int(truncatingIfNeeded: seed)))
    }

    @inlinable @inline(__always)
    func fold(_ word: UInt64) -> UInt32 {
        let product = (word ^ seed).multipliedFullWidth(by: 0x9E37_79B9_7F4A_7C15)
        let folded = product.high ^ product.low
        return UInt32(truncatingIfNeeded: folded ^ (folded >> 32))
    }
}

public import Synchronization

/// Maps a hash to its shard: extendible hashing (Fagin et al., TODS 1979) with all directory places allocated from
/// the beginning.
///
/// A cache starts as one shard and splits shards that have grown. A small cache is thus compact and judges well
/// which entries are cold. A large cache has a lock for each of many threads. After locking a shard, check again
/// that the shard still owns the hash.
@usableFromInline
// Unchecked: a pointer to atomics, which live as long as the cache.
struct CacheDirectory: @unchecked Sendable {
    @usableFromInline let places: UnsafeMutablePointer<Atomic<UInt>>
    @usableFromInline let depth: UInt32

    /// Creates a directory whose places all lead to `first`.
    ///
    /// - Parameter depth: the binary logarithm of the maximum number of shards.
    init(depth: UInt32, first: CacheShard) {
        self.depth = depth
        places = .allocate(capacity: 1 << depth)
        for place in 0..<1 << Int(depth) { (places + place).initialize(to: Atomic(UInt(bitPattern: first.base))) }
    }

    func free() { places.deallocate() }

    @inlinable @inline(__always)
    func shard(of hash: UInt32) -> CacheShard { shard(at: Int(UInt64(hash) &>> UInt64(32 &- depth))) }

    @inlinable @inline(__always)
    func shard(at place: Int) -> CacheShard {
        // Acquires all contents that a new shard was filled with.
        CacheShard(
            base: UnsafeMutableRawPointer(bitPattern: places[place].load(ordering: .acquiring)).unsafelyUnwrapped)
    }

    @inlinable
    var count: Int { 1 << Int(depth) }

    /// Returns the places that lead to the shard of `depth` that owns `hash`.
    func range(of hash: UInt32, depth: UInt32) -> Range<Int> {
        let length = 1 << Int(self.depth - depth)
        let first = Int(UInt64(hash) >> UInt64(32 - self.depth)) & ~(length - 1)
        return first..<first + length
    }

    func set(_ range: Range<Int>, _ shard: CacheShard) {
        for place in range { places[place].store(UInt(bitPattern: shard.base), ordering: .releasing) }
    }

    /// Returns true if a shard has that address.
    func contains(_ address: UInt) -> Bool { (0..<count).contains { places[$0].load(ordering: .relaxed) == address } }

    /// Calls `body` with each shard, from place `start` on and around, until `body` returns false. A shard that
    /// splits meanwhile may appear as two.
    func forEach(from start: Int = 0, _ body: (CacheShard) -> Bool) {
        var last: UnsafeMutableRawPointer?
        for place in 0..<count {
            let shard = shard(at: (start + place) & (count - 1))
            if shard.base == last { continue }
            last = shard.base
            if !body(shard) { return }
        }
    }
}

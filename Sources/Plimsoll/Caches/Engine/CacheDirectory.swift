public import Synchronization

/// From a hash to its shard: extendible hashing (Fagin et al., TODS 1979) with all places of the directory there from the beginning.
///
/// A cache begins as one shard and splits those that have grown, so that a small one is small and judges well what is cold, and a large one has a lock for each
/// of many threads. Whoever has locked a shard asks again whether it is still the one.
@usableFromInline
// Unchecked: a pointer to atomics, which live as long as the cache.
struct CacheDirectory: @unchecked Sendable {
    @usableFromInline let places: UnsafeMutablePointer<Atomic<UInt>>
    @usableFromInline let depth: UInt32

    /// - Parameter depth: two to this power is how many shards there may be.
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
        // Acquired with all that a new shard was filled with.
        CacheShard(base: UnsafeMutableRawPointer(bitPattern: places[place].load(ordering: .acquiring)).unsafelyUnwrapped)
    }

    @inlinable
    var count: Int { 1 << Int(depth) }

    /// The places that lead to a shard of `depth` which one with `hash` belongs to.
    func range(of hash: UInt32, depth: UInt32) -> Range<Int> {
        let length = 1 << Int(self.depth - depth)
        let first = Int(UInt64(hash) >> UInt64(32 - self.depth)) & ~(length - 1)
        return first..<first + length
    }

    func set(_ range: Range<Int>, _ shard: CacheShard) {
        for place in range { places[place].store(UInt(bitPattern: shard.base), ordering: .releasing) }
    }

    /// Whether a shard has that address.
    func contains(_ address: UInt) -> Bool { (0..<count).contains { places[$0].load(ordering: .relaxed) == address } }

    /// Calls `body` with each shard, from the one at a place on and around, as long as it returns true. One that splits meanwhile may come as two.
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

import CPlimsollMemory

/// Hashes of entries that left the small queue lately: about 0.9 times as many as there are entries.
///
/// Combines the paper's ghost queue and its look-up in one table of some 2 bytes an entry. One part of the hash
/// selects a bucket. The bucket holds another part of each of the last sixteen hashes, the latest first. A new hash
/// shifts out the oldest. The window therefore has no sharp end: most hashes that are a fifth older are forgotten.
/// Only `reserve` allocates, because eviction under pressure must not.
struct GhostTable: ~Copyable {
    private typealias Bucket = SIMD16<UInt16>

    private var buckets: UnsafeMutablePointer<Bucket>?
    private var count: UInt64 = 0
    /// Number of leading hashes in a bucket that still count.
    private var depth = 0
    /// Number of entries of which the window is nine tenths; negative before the first `reserve`.
    private(set) var entries = -1

    deinit { buckets?.deallocate() }

    /// Returns an independent copy.
    func copy() -> GhostTable {
        var copy = GhostTable()
        guard let buckets else { return copy }
        (copy.count, copy.depth, copy.entries) = (count, depth, entries)
        copy.buckets = .allocate(capacity: Int(count))
        copy.buckets?.initialize(from: buckets, count: Int(count))
        return copy
    }

    /// Makes room to remember nine tenths of `entries`. A table that grows or shrinks much forgets its contents.
    @inline(__always)
    mutating func reserve(_ entries: Int) { if entries != self.entries { resize(entries) } }

    @inline(never)
    private mutating func resize(_ entries: Int) {
        self.entries = entries
        let window = max(1, entries * 9 / 10), most = Bucket.scalarCount, least = UInt64((window + most - 1) / most)
        if count < least || count > least * 4 {
            buckets?.deallocate()
            count = least + least / 4
            let new = UnsafeMutablePointer<Bucket>.allocate(capacity: Int(count))
            new.initialize(repeating: Bucket(), count: Int(count))
            buckets = new
        }
        depth = (window + Int(count) - 1) / Int(count)
    }

    /// Remembers `hash`. Returns false if there is no room for any hash.
    @inline(__always)
    mutating func insert(_ hash: UInt32) -> Bool {
        guard let buckets else { return false }
        let bucket = UnsafeMutableRawPointer(buckets + bucket(hash))
        // Shift all hashes one place back.
        let first = bucket.loadUnaligned(as: SIMD8<UInt16>.self),
            second = bucket.loadUnaligned(fromByteOffset: 14, as: SIMD8<UInt16>.self)
        bucket.storeBytes(of: first, toByteOffset: 2, as: SIMD8<UInt16>.self)
        bucket.storeBytes(of: second, toByteOffset: 16, as: SIMD8<UInt16>.self)
        bucket.storeBytes(of: mark(hash), as: UInt16.self)
        return true
    }

    /// Forgets `hash`. Returns true if the hash was remembered.
    @inline(__always)
    mutating func remove(_ hash: UInt32) -> Bool {
        guard let buckets else { return false }
        let bucket = buckets + bucket(hash), mark = mark(hash)
        let equal = unsafeBitCast(bucket.pointee .== Bucket(repeating: mark), to: SIMD16<Int16>.self)
        // One byte for each: the first match is then a count of trailing zeros, not a loop with an unpredictable
        // end.
        let words = unsafeBitCast(SIMD16<Int8>(truncatingIfNeeded: equal), to: SIMD2<UInt64>.self)
        guard words[0] | words[1] != 0 else { return false }
        let place = (words[0] != 0 ? words[0].trailingZeroBitCount : 64 &+ words[1].trailingZeroBitCount) &>> 3
        guard place < depth else { return false }
        // Later hashes shift out the gap as they would have shifted out the mark.
        UnsafeMutableRawPointer(bucket).storeBytes(of: 0, toByteOffset: place &* 2, as: UInt16.self)
        return true
    }

    /// Returns the part of `hash` that a bucket stores. Never 0, which marks an empty place.
    @inline(__always)
    private func mark(_ hash: UInt32) -> UInt16 { UInt16(truncatingIfNeeded: (hash &* 0x85EB_CA6B) >> 16) | 1 }
    @inline(__always)
    private func bucket(_ hash: UInt32) -> Int { Int(truncatingIfNeeded: (UInt64(hash &* 0xC2B2_AE35) &* count) >> 32) }

    @inline(__always)
    func fetch(_ hash: UInt32) { if let buckets { plimsoll_prefetch(buckets + bucket(hash)) } }

    var byteCount: Int { Int(count) * MemoryLayout<Bucket>.stride }
}

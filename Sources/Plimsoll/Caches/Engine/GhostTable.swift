import CPlimsollMemory

/// Hashes of what left the small queue lately: as many as there are entries, times 0.9, in the order in which they left.
///
/// The paper's queue and a look-up in one table of some 5 bytes an entry: a bucket of eight cells by one part of the hash, and in each cell another part and the
/// moment. A cell is forgotten when that many others have come after it, or when its bucket is full of later ones. Only `reserve` allocates: evicting under
/// pressure must not.
struct GhostTable: ~Copyable {
    private typealias Bucket = SIMD8<UInt32>

    private var buckets: UnsafeMutablePointer<Bucket>?
    private var count: UInt64 = 0
    /// Hashes put in so far.
    private var clock: UInt64 = 0
    /// How many of them a moment is made of, as a power of two: 13 bits of moments last for the window. A
    /// cell has 16: before they begin anew its bucket has been filled with later ones (with 15, one in five came back to life).
    private var shift: UInt64 = 0
    private var window: UInt64 = 0
    /// What `window` is nine tenths of; less than nothing until there is one.
    private var entries = -1

    deinit { buckets?.deallocate() }

    /// One of its own with the same content.
    func copy() -> GhostTable {
        var copy = GhostTable()
        guard let buckets else { return copy }
        (copy.count, copy.clock, copy.shift, copy.window, copy.entries) = (count, clock, shift, window, entries)
        copy.buckets = .allocate(capacity: Int(count))
        copy.buckets?.initialize(from: buckets, count: Int(count))
        return copy
    }

    /// Makes room to remember nine tenths of `entries`; a table that grows or shrinks much forgets.
    @inline(__always)
    mutating func reserve(_ entries: Int) { if entries != self.entries { resize(entries) } }

    @inline(never)
    private mutating func resize(_ entries: Int) {
        self.entries = entries
        window = max(1, UInt64(entries) * 9 / 10)
        // Half as many cells again, so that few buckets overflow.
        let wanted = (window * 3 / 2 + 7) / 8
        guard count < wanted || count > wanted * 4 else { return }
        buckets?.deallocate()
        count = wanted + wanted / 4
        let new = UnsafeMutablePointer<Bucket>.allocate(capacity: Int(count))
        new.initialize(repeating: Bucket(), count: Int(count))
        buckets = new
        shift = 0
        while window >> shift >= 1 << 13 { shift += 1 }
        clock = (1 << 15) << shift
    }

    /// False if there is no room for any.
    @inline(__always)
    mutating func insert(_ hash: UInt32) -> Bool {
        guard let buckets else { return false }
        clock += 1
        let cells = UnsafeMutableRawPointer(buckets + bucket(hash)).assumingMemoryBound(to: UInt32.self), now = moment
        // In the place of the oldest; an empty one is older than any. Without branches, as nobody could foresee them.
        var oldest = UInt32(0)
        for cell in 0..<8 {
            let content = cells[cell], isEmpty = UInt32(truncatingIfNeeded: (UInt64(content) &- 1) >> 63)
            oldest = max(oldest, (((now &- content) & 0xFFFF) | isEmpty << 16) << 3 | UInt32(cell))
        }
        let place = Int(oldest & 7)
        cells[place] = mark(hash) | now
        return true
    }

    /// Forgets `hash`; true if it was remembered.
    @inline(__always)
    mutating func remove(_ hash: UInt32) -> Bool {
        guard let buckets else { return false }
        let bucket = buckets + bucket(hash), mark = mark(hash)
        let found = (bucket.pointee & 0xFFFF_0000) .== Bucket(repeating: mark)
        guard any(found) else { return false }
        let now = moment, cells = UnsafeMutableRawPointer(bucket).assumingMemoryBound(to: UInt32.self)
        for cell in 0..<8 where cells[cell] & 0xFFFF_0000 == mark && cells[cell] != 0 {
            let age = (now &- cells[cell]) & 0xFFFF
            cells[cell] = 0
            return UInt64(age) < max(1, window >> shift)
        }
        return false
    }

    @inline(__always)
    private var moment: UInt32 { UInt32(truncatingIfNeeded: clock >> shift) & 0xFFFF }
    @inline(__always)
    private func mark(_ hash: UInt32) -> UInt32 { (hash &* 0x85EB_CA6B) & 0xFFFF_0000 }
    @inline(__always)
    private func bucket(_ hash: UInt32) -> Int { Int(truncatingIfNeeded: (UInt64(hash &* 0xC2B2_AE35) &* count) >> 32) }

    /// Has the processor bring the bucket of `hash`.
    @inline(__always)
    func fetch(_ hash: UInt32) { if let buckets { plimsoll_prefetch(buckets + bucket(hash)) } }

    var byteCount: Int { Int(count) * MemoryLayout<Bucket>.stride }
}

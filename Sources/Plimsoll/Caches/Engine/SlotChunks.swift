public import Synchronization

/// Memory for slots 0, 1, 2 and so on, in chunks of doubling size: growing moves nothing, and an address once found stays good.
///
/// Each chunk has three columns, so that a look-up brings only what it needs into the processor's cache: pairs of key and value, nodes, and marks.
/// Addresses of chunks are published atomically, so that a reader without the lock finds its way; it asks only for slots that an index has shown it.
@usableFromInline
struct SlotChunks {
    private let addresses: UnsafeMutablePointer<Atomic<UInt>>
    private let pairSize: Int
    private var pieces: ContiguousArray<CachePiece?>

    /// The first chunk has 16 slots, the second 32; the last ends where an index cell can't count further.
    static var most: Int { 20 }
    static var capacity: Int { (16 << most) - 16 }

    /// - Parameters:
    ///   - pairSize: bytes of a key and a value, a multiple of 4.
    ///   - addresses: room for `most` of them, which the owner frees after these.
    init(pairSize: Int, addresses: UnsafeMutablePointer<Atomic<UInt>>) {
        self.pairSize = pairSize
        self.addresses = addresses
        for chunk in 0..<Self.most { (addresses + chunk).initialize(to: Atomic(0)) }
        pieces = ContiguousArray(repeating: nil, count: Self.most)
    }

    func free() { for piece in pieces { piece?.free() } }

    @inline(__always)
    func place(_ slot: UInt32) -> SlotPlace { SlotPlace(slot, addresses, pairSize) }

    /// Makes sure that there is room for `slot`. Allocates where it is the first of a chunk.
    mutating func reserve(_ slot: UInt32) {
        let chunk = SlotPlace.chunk(of: slot)
        guard pieces[chunk] == nil else { return }
        let piece = CachePiece((16 << chunk) * (pairSize + SlotNode.byteCount + 1))
        pieces[chunk] = piece
        // Released with the zeros in it.
        addresses[chunk].store(UInt(bitPattern: piece.base), ordering: .releasing)
    }

    /// Gives back what lies behind the first `count` slots: whole pages, and whole chunks if no reader can be at them.
    ///
    /// - Returns: bytes given back.
    mutating func trim(to count: Int, hasReaders: Bool) -> Int {
        var bytes = 0
        for chunk in 0..<Self.most {
            guard let piece = pieces[chunk] else { continue }
            let room = 16 << chunk, kept = count - (room - 16)
            if kept <= 0, !hasReaders {
                addresses[chunk].store(0, ordering: .relaxed)
                pieces[chunk] = nil
                piece.free()
                bytes += piece.byteCount
            } else if kept < room {
                var start = 0
                for size in [pairSize, SlotNode.byteCount, 1] {
                    bytes += piece.giveBack(start + max(0, kept) * size, to: start + room * size)
                    start += room * size
                }
            }
        }
        return bytes
    }

    /// All there is, which is somebody else's from now on; the next slot is in a new chunk.
    mutating func detach() -> ContiguousArray<CachePiece?> {
        for chunk in 0..<Self.most { addresses[chunk].store(0, ordering: .relaxed) }
        defer { pieces = ContiguousArray(repeating: nil, count: Self.most) }
        return pieces
    }

    /// Bytes asked of the system.
    var byteCount: Int { pieces.reduce(0) { $0 + ($1?.byteCount ?? 0) } }
}

/// Where a slot's parts are.
@frozen @usableFromInline
struct SlotPlace {
    @usableFromInline let base: UInt
    @usableFromInline let index: UInt
    /// Slots in its chunk.
    @usableFromInline let room: UInt
    @usableFromInline let pairSize: UInt

    @inlinable @inline(__always)
    init(_ slot: UInt32, _ addresses: UnsafeMutablePointer<Atomic<UInt>>, _ pairSize: Int) {
        let number = UInt(slot) &+ 16
        let chunk = 59 &- number.leadingZeroBitCount
        room = 16 &<< UInt(truncatingIfNeeded: chunk)
        index = number ^ room
        self.pairSize = UInt(bitPattern: pairSize)
        // Acquired with the zeros that the chunk was made of.
        base = addresses[chunk].load(ordering: .acquiring)
    }

    static func chunk(of slot: UInt32) -> Int { 59 - (UInt(slot) + 16).leadingZeroBitCount }

    /// Key and value.
    @inlinable @inline(__always)
    var pair: UnsafeMutableRawPointer { UnsafeMutableRawPointer(bitPattern: base &+ index &* pairSize).unsafelyUnwrapped }

    /// The same in a chunk that belongs to no shard any more.
    init(_ chunk: Int, index: Int, in piece: CachePiece, pairSize: Int) {
        (room, self.index, self.pairSize, base) = (16 << UInt(chunk), UInt(index), UInt(pairSize), UInt(bitPattern: piece.base))
    }

    @inline(__always)
    var node: UnsafeMutablePointer<SlotNode> {
        UnsafeMutablePointer(bitPattern: base &+ room &* pairSize &+ index &* UInt(SlotNode.byteCount)).unsafelyUnwrapped
    }

    /// Uses since it came into its queue, at most 3. Set by readers without the lock; one that gets lost, or hits the next to live here, is but a use.
    @inlinable @inline(__always)
    var mark: UnsafeMutablePointer<Atomic<UInt8>> {
        UnsafeMutablePointer(bitPattern: base &+ room &* (pairSize &+ UInt(SlotNode.byteCount)) &+ index).unsafelyUnwrapped
    }

    /// Counts a use.
    @inlinable @inline(__always)
    func use() {
        let mark = mark, uses = mark.pointee.load(ordering: .relaxed)
        // What is hot is only read: its line stays with every core that uses it.
        if uses < 3 { mark.pointee.store(uses &+ 1, ordering: .relaxed) }
    }
}

/// What the queues know of a slot. Only whoever holds the lock looks at it.
@usableFromInline
struct SlotNode {
    var hash: UInt32
    /// Neighbours in the queue, older and newer; in a free slot, of the free ones. Of the oldest of a queue, `older` says nothing.
    private var links: (UInt32, UInt32)

    enum Queue: UInt8 { case free, small, main, pinned }

    @inlinable static var byteCount: Int { 12 }
    static var none: UInt32 { 0xFF_FFFF }

    /// 24 bits, as a slot has; the others say in which queue it is.
    var older: UInt32 {
        get { links.0 & 0xFF_FFFF }
        set { links.0 = links.0 & 0xFF00_0000 | newValue }
    }
    var newer: UInt32 {
        get { links.1 }
        set { links.1 = newValue }
    }
    var queue: Queue {
        get { Queue(rawValue: UInt8(links.0 >> 24)).unsafelyUnwrapped }
        set { links.0 = links.0 & 0xFF_FFFF | UInt32(newValue.rawValue) << 24 }
    }
}

/// How key and value lie in a pair.
@usableFromInline
enum SlotLayout<Key, Value> {
    @inlinable @inline(__always)
    static var valueOffset: Int { align(MemoryLayout<Key>.size, MemoryLayout<Value>.alignment) }
    @inlinable @inline(__always)
    static var pairSize: Int { align(valueOffset &+ MemoryLayout<Value>.size, max(4, MemoryLayout<Key>.alignment, MemoryLayout<Value>.alignment)) }
    /// Whether keys and values are bits that may be copied while they change and thrown away.
    @inlinable @inline(__always)
    static var isTrivial: Bool { _isPOD(Key.self) && _isPOD(Value.self) }

    @inlinable @inline(__always)
    static func align(_ offset: Int, _ alignment: Int) -> Int { (offset &+ alignment &- 1) & ~(alignment &- 1) }

    @inlinable @inline(__always)
    static func key(_ pair: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Key> { pair.assumingMemoryBound(to: Key.self) }
    @inlinable @inline(__always)
    static func value(_ pair: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Value> { (pair + valueOffset).assumingMemoryBound(to: Value.self) }

    /// Puts key and value into an empty pair.
    @inlinable @inline(__always)
    static func fill(_ pair: UnsafeMutableRawPointer, _ key: Key, _ value: Value) {
        if isTrivial {
            withUnsafeBytes(of: key) { CacheWords.write($0.count, MemoryLayout<Key>.alignment, from: $0.baseAddress.unsafelyUnwrapped, to: pair) }
            withUnsafeBytes(of: value) {
                CacheWords.write($0.count, MemoryLayout<Value>.alignment, from: $0.baseAddress.unsafelyUnwrapped, to: pair + valueOffset)
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
            CacheWords.write(pairSize, max(4, MemoryLayout<Key>.alignment, MemoryLayout<Value>.alignment), from: from, to: to)
        } else {
            key(to).moveInitialize(from: key(from), count: 1)
            value(to).moveInitialize(from: value(from), count: 1)
        }
    }

    /// Throws away key and value.
    @inlinable @inline(__always)
    static func destroy(_ pair: UnsafeMutableRawPointer) {
        guard !isTrivial else { return }
        key(pair).deinitialize(count: 1)
        value(pair).deinitialize(count: 1)
    }
}

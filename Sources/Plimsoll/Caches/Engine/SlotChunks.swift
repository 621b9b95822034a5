public import Synchronization

/// Memory for slots 0, 1, 2 and so on, in chunks of doubling size: growing moves nothing, and an address once found stays good.
///
/// Each chunk has three columns, so that a look-up brings only what it needs into the processor's cache: pairs of key and value, nodes, and marks.
/// Where they are is published atomically, so that a reader without the lock finds its way; it asks only for slots that an index has shown it.
@usableFromInline
struct SlotChunks {
    private let columns: UnsafeMutablePointer<SlotColumns>
    private let pairSize: Int
    private var pieces: ContiguousArray<CachePiece?>

    /// The first chunk has 16 slots, the second 32; the last ends where an index cell can't count further.
    @inlinable static var most: Int { 20 }
    static var capacity: Int { (16 << most) - 16 }

    /// - Parameters:
    ///   - pairSize: bytes of a key and a value, a multiple of 4.
    ///   - columns: room for `most` of them, which the owner frees after these.
    init(pairSize: Int, columns: UnsafeMutablePointer<SlotColumns>) {
        self.pairSize = pairSize
        self.columns = columns
        for chunk in 0..<Self.most { (columns + chunk).initialize(to: SlotColumns()) }
        pieces = ContiguousArray(repeating: nil, count: Self.most)
    }

    func free() { for piece in pieces { piece?.free() } }

    @inline(__always)
    func place(_ slot: UInt32) -> SlotPlace { places[slot] }

    @inline(__always)
    var places: SlotPlaces { SlotPlaces(columns: columns, pairSize: pairSize) }

    /// Makes sure that there is room for `slot`. Allocates where it is the first of a chunk.
    mutating func reserve(_ slot: UInt32) {
        let chunk = SlotPlace.chunk(of: slot)
        guard pieces[chunk] == nil else { return }
        let piece = CachePiece((16 << chunk) * (pairSize + SlotNode.byteCount + 1))
        pieces[chunk] = piece
        set(chunk, piece)
    }

    private func set(_ chunk: Int, _ piece: CachePiece?) { columns[SlotColumns.place(of: chunk)].set(piece?.base, room: 16 << chunk, pairSize) }

    /// Gives back what lies behind the first `count` slots: whole pages, and whole chunks if no reader can be at them.
    ///
    /// - Returns: bytes given back.
    mutating func trim(to count: Int, hasReaders: Bool) -> Int {
        var bytes = 0
        for chunk in 0..<Self.most {
            guard let piece = pieces[chunk] else { continue }
            let room = 16 << chunk, kept = count - (room - 16)
            if kept <= 0, !hasReaders {
                set(chunk, nil)
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
        for chunk in 0..<Self.most { set(chunk, nil) }
        defer { pieces = ContiguousArray(repeating: nil, count: Self.most) }
        return pieces
    }

    /// Bytes asked of the system.
    var byteCount: Int { pieces.reduce(0) { $0 + ($1?.byteCount ?? 0) } }
}

/// Where the columns of a chunk are, each as the address at which number 0 would be: slots are numbered from 16 on, so that a number's highest bit says in which
/// chunk it is and no more arithmetic is needed to find it.
@frozen @usableFromInline
struct SlotColumns: ~Copyable {
    @usableFromInline let pairs = Atomic<UInt>(0)
    @usableFromInline let marks = Atomic<UInt>(0)
    @usableFromInline let nodes = Atomic<UInt>(0)

    init() {}

    /// They stand in the order of their numbers' leading zeros, so the last chunk's first.
    static func place(of chunk: Int) -> Int { SlotChunks.most - 1 - chunk }

    /// - Parameters:
    ///   - base: of a chunk with `room` slots; `nil` for none.
    func set(_ base: UnsafeMutableRawPointer?, room: Int, _ pairSize: Int) {
        let start = base.map { UInt(bitPattern: $0) }
        let nodesBegin = room * pairSize, marksBegin = nodesBegin + room * SlotNode.byteCount
        nodes.store(start.map { $0 &+ UInt(nodesBegin) &- UInt(room * SlotNode.byteCount) } ?? 0, ordering: .relaxed)
        marks.store(start.map { $0 &+ UInt(marksBegin) &- UInt(room) } ?? 0, ordering: .relaxed)
        // Released with the others and with the zeros that the chunk is made of.
        pairs.store(start.map { $0 &- UInt(room * pairSize) } ?? 0, ordering: .releasing)
    }
}

/// Where all slots' parts are.
struct SlotPlaces {
    let columns: UnsafeMutablePointer<SlotColumns>
    let pairSize: Int

    @inline(__always)
    subscript(slot: UInt32) -> SlotPlace { SlotPlace(slot &+ 1, columns, pairSize) }
}

/// Where a slot's parts are.
@frozen @usableFromInline
struct SlotPlace {
    @usableFromInline let number: UInt
    @usableFromInline let columns: UnsafeMutablePointer<SlotColumns>
    @usableFromInline let pairSize: UInt

    /// - Parameters:
    ///   - mention: the slot plus one, as an index has it.
    @inlinable @inline(__always)
    init(_ mention: UInt32, _ columns: UnsafeMutablePointer<SlotColumns>, _ pairSize: Int) {
        number = UInt(mention) &+ 15
        // The last chunk's numbers have 40 leading zeros.
        self.columns = columns + (number.leadingZeroBitCount &- 40)
        self.pairSize = UInt(bitPattern: pairSize)
    }

    static func chunk(of slot: UInt32) -> Int { 59 - (UInt(slot) + 16).leadingZeroBitCount }

    /// Key and value.
    @inlinable @inline(__always)
    var pair: UnsafeMutableRawPointer {
        // Acquired with the zeros that the chunk was made of.
        UnsafeMutableRawPointer(bitPattern: columns.pointee.pairs.load(ordering: .acquiring) &+ number &* pairSize).unsafelyUnwrapped
    }

    @inline(__always)
    var node: UnsafeMutablePointer<SlotNode> {
        UnsafeMutablePointer(bitPattern: columns.pointee.nodes.load(ordering: .relaxed) &+ number &* UInt(SlotNode.byteCount)).unsafelyUnwrapped
    }

    /// Uses since it came into its queue, at most 3. Set by readers without the lock; one that gets lost, or hits the next to live here, is but a use.
    @inlinable @inline(__always)
    var mark: UnsafeMutablePointer<Atomic<UInt8>> {
        UnsafeMutablePointer(bitPattern: columns.pointee.marks.load(ordering: .relaxed) &+ number).unsafelyUnwrapped
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

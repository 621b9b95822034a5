/// A column with a number for each slot, allocated only when a slot needs one. Chunks double in size, so growing
/// moves nothing.
struct SlotColumn<Element: BitwiseCopyable> {
    private var pieces: ContiguousArray<CachePiece?> = []
    /// The first chunk has 16 slots, the second 32.
    private static var chunks: Int { 21 }
    private static func chunk(of slot: UInt32) -> Int { 59 - (UInt(slot) + 16).leadingZeroBitCount }
    private let usual: Element

    /// Creates an unused column.
    ///
    /// - Parameter usual: the value of slots until they are set.
    init(usual: Element) { self.usual = usual }

    func free() { for piece in pieces { piece?.free() } }

    /// Resets the column to unused.
    ///
    /// - Returns: the memory, which the caller now owns.
    mutating func detach() -> [CachePiece] {
        defer { pieces = [] }
        return pieces.compactMap { $0 }
    }

    var isUsed: Bool { !pieces.isEmpty }

    private func address(_ slot: UInt32) -> UnsafeMutablePointer<Element>? {
        let chunk = Self.chunk(of: slot)
        return pieces[chunk].map { $0.base.assumingMemoryBound(to: Element.self) + (Int(slot) + 16 - (16 << chunk)) }
    }

    subscript(slot: UInt32) -> Element { isUsed ? address(slot)?.pointee ?? usual : usual }

    /// Starts storing a number for each slot; the first `count` slots get `element`.
    mutating func use(_ count: Int, filledWith element: Element) {
        guard !isUsed else { return }
        pieces = ContiguousArray(repeating: nil, count: Self.chunks)
        for slot in 0..<UInt32(count) {
            reserve(slot)
            set(slot, element)
        }
    }

    /// Allocates room for `slot`, if the column is in use.
    mutating func reserve(_ slot: UInt32) {
        let chunk = Self.chunk(of: slot)
        guard isUsed, pieces[chunk] == nil else { return }
        pieces[chunk] = CachePiece((16 << chunk) * MemoryLayout<Element>.stride)
    }

    func set(_ slot: UInt32, _ element: Element) { if isUsed { address(slot)?.pointee = element } }

    /// Releases the memory behind the first `count` slots.
    mutating func trim(to count: Int) -> Int {
        var bytes = 0
        for chunk in pieces.indices {
            guard let piece = pieces[chunk] else { continue }
            let kept = count - ((16 << chunk) - 16)
            if kept <= 0 {
                pieces[chunk] = nil
                piece.free()
                bytes += piece.byteCount
            } else {
                bytes += piece.giveBack(kept * MemoryLayout<Element>.stride, to: piece.byteCount)
            }
        }
        return bytes
    }

    var byteCount: Int { pieces.reduce(0) { $0 + ($1?.byteCount ?? 0) } }
}

import Synchronization

/// Buffers in which values are assembled for `withBytes`, taken one at a time and reused, so that reading allocates
/// nothing.
@usableFromInline
// Unchecked: a buffer belongs to the thread that removed the buffer from the pool by an atomic exchange.
final class ScratchPool: @unchecked Sendable {
    @usableFromInline
    struct Buffer {
        @usableFromInline let start: UnsafeMutableRawPointer
        let capacity: Int
    }

    private static let places = 8
    private static let smallest = 4 << 10
    /// Capacity above which a buffer is freed instead of kept.
    private static let largestKept = 256 << 10

    /// Addresses of free buffers, each with the capacity in the 16 bytes before; zero for none.
    private let free: UnsafeMutablePointer<Atomic<UInt>>

    init() {
        free = .allocate(capacity: Self.places)
        for place in 0..<Self.places { (free + place).initialize(to: Atomic(0)) }
    }

    deinit {
        clear()
        free.deallocate()
    }

    /// Returns a buffer of at least `bytes`.
    @usableFromInline
    func take(_ bytes: Int) -> Buffer {
        for place in 0..<Self.places where free[place].load(ordering: .relaxed) != 0 {
            // Acquiring: pairs with the release in `give`, so the capacity is seen.
            guard let start = UnsafeMutableRawPointer(bitPattern: free[place].exchange(0, ordering: .acquiring)) else {
                continue
            }
            let capacity = (start - 16).load(as: Int.self)
            if capacity >= bytes { return Buffer(start: start, capacity: capacity) }
            (start - 16).deallocate()
        }
        var capacity = Self.smallest
        while capacity < bytes { capacity *= 2 }
        let start = UnsafeMutableRawPointer.allocate(byteCount: capacity + 16, alignment: 16) + 16
        (start - 16).storeBytes(of: capacity, as: Int.self)
        return Buffer(start: start, capacity: capacity)
    }

    @usableFromInline
    func give(_ buffer: Buffer) {
        if buffer.capacity <= Self.largestKept {
            for place in 0..<Self.places
            where free[place].compareExchange(
                expected: 0, desired: UInt(bitPattern: buffer.start), ordering: .releasing
            ).exchanged { return }
        }
        (buffer.start - 16).deallocate()
    }

    /// Frees the buffers that are not in use.
    ///
    /// - Returns: bytes freed.
    @discardableResult
    func clear() -> Int {
        var freed = 0
        for place in 0..<Self.places {
            guard let start = UnsafeMutableRawPointer(bitPattern: free[place].exchange(0, ordering: .acquiring)) else {
                continue
            }
            freed += (start - 16).load(as: Int.self)
            (start - 16).deallocate()
        }
        return freed
    }
}

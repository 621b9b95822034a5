import Synchronization

/// The address and generation of each segment, by number, for readers.
///
/// The table grows in leaves that are never moved, so readers need no lock. Only the holder of the log's lock writes.
// Unchecked: all fields that readers use are atomic; leaves are published with release and never freed before the end.
final class SegmentTable: @unchecked Sendable {
    struct Record: ~Copyable {
        /// The sentinel of the segment's pages; zero if no segment has this number.
        let generation = Atomic<UInt64>(0)
        let base = Atomic<UInt>(0)
    }

    /// Upper bound of the numbers, exclusive.
    static let capacity = 1 << 20
    private static let leafSize = 1024

    private let leaves: UnsafeMutablePointer<Atomic<UInt>>
    private(set) var count = 0

    init() {
        let number = Self.capacity / Self.leafSize
        leaves = .allocate(capacity: number)
        for leaf in 0..<number { (leaves + leaf).initialize(to: Atomic(0)) }
    }

    deinit {
        for leaf in 0..<Self.capacity / Self.leafSize {
            UnsafeMutablePointer<Record>(bitPattern: leaves[leaf].load(ordering: .relaxed))?.deallocate()
        }
        leaves.deallocate()
    }

    /// Returns the record of a number that `add` has returned.
    @inline(__always)
    subscript(number: Int) -> UnsafeMutablePointer<Record> {
        // Acquiring: pairs with the release in `add`.
        UnsafeMutablePointer(bitPattern: leaves[number / Self.leafSize].load(ordering: .acquiring)).unsafelyUnwrapped
            + number % Self.leafSize
    }

    /// Returns a new number; `nil` when all are in use.
    func add() -> Int? {
        guard count < Self.capacity else { return nil }
        if count % Self.leafSize == 0 {
            let leaf = UnsafeMutablePointer<Record>.allocate(capacity: Self.leafSize)
            for record in 0..<Self.leafSize { (leaf + record).initialize(to: Record()) }
            leaves[count / Self.leafSize].store(UInt(bitPattern: leaf), ordering: .releasing)
        }
        count += 1
        return count - 1
    }
}

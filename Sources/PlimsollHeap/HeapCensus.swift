/// The blocks of malloc in this process, counted by the Swift type at their start.
///
///     let census = try HeapCensus.take()
///     for row in census.rows.prefix(10) { print(row.totalBytes, row.count, row.name) }
///
/// A census names what a heap holds, as `heap` does on macOS, without instruments, a stop or a fork: the calling thread
/// reads the process's memory through the kernel while the other threads go on. Counts of types that change meanwhile
/// are those of about that time.
public struct HeapCensus: Sendable, Hashable, Codable {
    /// All objects with one name.
    public struct Row: Sendable, Hashable, Codable {
        /// The type with its generic arguments, such as `Dictionary<String, Shop.Order>`; `closure capturing …` with
        /// the captured types; `task`, `error`, and C++ classes by their name.
        public var name: String
        /// Number of objects.
        public var count: Int
        /// Bytes of their blocks.
        public var bytes: Int
        /// Bytes of the elements of arrays, dictionaries, sets and strings; `nil` for other types.
        public var usedBytes: Int?
        /// Bytes of the room for those elements.
        public var capacityBytes: Int?
        /// Number of blocks without a name to which these objects point. Each block is counted for one owner. An
        /// estimate from a sample if the heap has more than 98,000 such blocks.
        public var ownedBlocks: Int
        /// Bytes of the blocks counted by `ownedBlocks`.
        public var ownedBytes: Int
        /// Bytes of the objects and of what they own.
        public var totalBytes: Int { bytes + ownedBytes }
    }

    /// A way to find blocks.
    public enum Way: String, Sendable, Hashable, Codable {
        /// Walks the chunks of glibc's malloc: every block is seen.
        case chunks
        /// Follows the tree of jemalloc's pages: every block is seen. Blocks that threads keep for their next call count
        /// as unnamed ones.
        case pages
        /// Looks for headers of objects, under any other malloc: blocks without a header are not seen, and nothing is
        /// owned.
        case scan
    }

    /// The way in which the blocks were found.
    public var way: Way
    /// The types, the largest first, with what they own.
    public var rows: [Row]
    /// Bytes of blocks that carry the name of a type.
    public var namedBytes: Int
    /// Bytes of blocks without a name to which a named object points.
    public var ownedBytes: Int
    /// Bytes of all other blocks in use, such as those of C libraries. By a scan: of all other private memory.
    public var unnamedBytes: Int
    /// Bytes that malloc keeps free. 0 by a scan.
    public var freeBytes: Int
    /// Bytes that were skipped because another thread changed the heap meanwhile.
    public var lostBytes: Int
    /// Seconds of processor time that the census took.
    public var processorSeconds: Double

    /// Bytes in use; at most `Int.max`, as a census of another process may have any numbers.
    public var usedBytes: Int {
        [ownedBytes, unnamedBytes].reduce(namedBytes) { sum, bytes in
            let (next, isOver) = sum.addingReportingOverflow(bytes)
            return isOver ? .max : next
        }
    }
    /// Share of the bytes in use that is named or owned; 0 to 1.
    public var coverage: Double { usedBytes == 0 ? 1 : (Double(namedBytes) + Double(ownedBytes)) / Double(usedBytes) }

    /// Returns the rows that have grown since `earlier`, the most grown first. Numbers are differences.
    ///
    /// - Complexity: O(*n* log *n*) for *n* rows.
    public func growth(since earlier: HeapCensus) -> [Row] {
        let before = Dictionary(earlier.rows.map { ($0.name, $0) }) { first, _ in first }
        let grown = rows.map { row in
            guard let old = before[row.name] else { return row }
            var row = row
            row.count -= old.count
            row.bytes -= old.bytes
            row.ownedBlocks -= old.ownedBlocks
            row.ownedBytes -= old.ownedBytes
            row.usedBytes = row.usedBytes.map { $0 - (old.usedBytes ?? 0) }
            row.capacityBytes = row.capacityBytes.map { $0 - (old.capacityBytes ?? 0) }
            return row
        }
        return grown.filter { $0.totalBytes > 0 }.sorted(by: Self.isLarger)
    }

    static func isLarger(_ one: Row, _ other: Row) -> Bool {
        (one.totalBytes, other.name) > (other.totalBytes, one.name)
    }
}

/// The reason why there is no census.
public struct HeapCensusError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The reason, as a sentence.
    public let description: String

    package init(_ description: String) { self.description = description }
}

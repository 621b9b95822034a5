import Plimsoll
import PlimsollHeap

/// Bytes on the heap that entries of a cache refer to, beside those that the cache declares for them.
package struct CostCheck: Sendable, Hashable, Codable {
    package var name: String
    /// Number of entries that were looked at, a sample of the contents.
    package var entries: Int
    /// Sum of their costs.
    package var declaredBytes: Int
    /// Size of keys and values, and of the blocks to which one of the entries alone leads.
    package var foundBytes: Int

    /// Found bytes to declared ones.
    package var factor: Double { Double(foundBytes) / Double(max(1, declaredBytes)) }
    /// True if the cache declares less than half or more than twice the bytes found.
    package var isFar: Bool { factor > 2 || factor < 0.5 }

    package init(name: String, entries: Int, declaredBytes: Int, foundBytes: Int) {
        (self.name, self.entries) = (name, entries)
        (self.declaredBytes, self.foundBytes) = (declaredBytes, foundBytes)
    }

    /// Entries that are looked at, and the fewest: of one entry alone nothing tells what is shared with others.
    private static let most = 64, fewest = 4
    /// Words that the entries of a cache may lead to: 16 MiB.
    private static let words = 1 << 21

    /// Compares what a cache declares with the heap. Blocks the calling thread for some milliseconds.
    ///
    /// - Returns: `nil` if the cache has too few entries, if they lead to more than 16 MiB, as entries do that refer to
    ///   a large part of the program, or if the size of a block is not known (`HeapCensus.bytes(reachedFrom:atMost:)`).
    static func of(_ purgeable: any SampledPurgeable) -> CostCheck? {
        var check: CostCheck?
        purgeable.withSample(of: most) { sample in
            guard sample.count >= fewest,
                let bytes = HeapCensus.bytes(reachedFrom: sample.map(\.words), atMost: words)
            else { return }
            check = CostCheck(
                name: purgeable.name, entries: sample.count, declaredBytes: sample.reduce(0) { $0 + $1.cost },
                foundBytes: zip(sample, bytes).reduce(0) { $0 + $1.0.inlineBytes + $1.1 })
        }
        return check
    }
}

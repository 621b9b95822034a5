import Plimsoll
package import PlimsollHeap
import Synchronization

/// A census of the heap as an admin endpoint tells it.
package struct HeapStatus: Sendable, Hashable, Codable {
    /// The census, with the largest rows only.
    package var census: HeapCensus
    /// Number of types in the heap.
    package var types: Int
    /// Bytes that the registered caches and other purgeables say they hold on the heap.
    package var declaredBytes: Int
    /// Declared bytes of caches beside those that a sample of their entries refers to; `nil` from a version without the
    /// field.
    package var costs: [CostCheck]?
    /// Rows that have grown since the census before, the most grown first; `nil` for the first census of the process.
    package var growth: [HeapCensus.Row]?
    /// Seconds since the census before.
    package var growthSeconds: Double?
}

/// The last census that was asked for, to tell what has grown by the next.
final class HeapHistory: Sendable {
    private let last = Mutex<(census: HeapCensus, at: Duration)?>(nil)
    private let isTaking = Atomic(false)
    private let time: Timekeeper
    private let takeCensus: @Sendable () throws(HeapCensusError) -> HeapCensus

    init(
        time: Timekeeper,
        takeCensus: @escaping @Sendable () throws(HeapCensusError) -> HeapCensus = { () throws(HeapCensusError) in
            try HeapCensus.take()
        }
    ) {
        (self.time, self.takeCensus) = (time, takeCensus)
    }

    /// Takes a census. Blocks the calling thread meanwhile. A second caller is refused, so that many callers do not
    /// wait for each other.
    func take(rows: Int, declared: Int, costsOf caches: [any SampledPurgeable] = []) throws(AdminRefusal) -> HeapStatus
    {
        // Relaxed: the flag turns others away and publishes nothing; `last` has a lock.
        guard !isTaking.exchange(true, ordering: .relaxed) else {
            throw AdminRefusal(.busy, "cannot count the heap now because another census is being taken; ask again")
        }
        defer { isTaking.store(false, ordering: .relaxed) }
        var census: HeapCensus
        do throws(HeapCensusError) { census = try takeCensus() } catch {
            throw AdminRefusal(.failed, error.description)
        }
        let now = time.elapsed()
        let before = last.withLock { last in
            defer { last = (census, now) }
            return last
        }
        let types = census.rows.count
        let growth = before.map { Array(census.growth(since: $0.census).prefix(rows)) }
        census.rows = Array(census.rows.prefix(rows))
        let seconds = before.map { (now - $0.at).inSeconds }
        return HeapStatus(
            census: census, types: types, declaredBytes: declared, costs: caches.compactMap { CostCheck.of($0) },
            growth: growth, growthSeconds: seconds)
    }
}

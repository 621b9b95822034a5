import Plimsoll
import PlimsollTesting
import Synchronization

/// Checks that the sum of costs is never above the limit when an insert, or a change of the limit, has returned.
///
/// Threads insert at random costs while one thread changes the limit. An inserter checks after each insert: if no
/// change of the limit was under way from before the check until after, all earlier work must be within the limit. The
/// thread that changes the limit checks as soon as a change has returned.
final class OverLimit: Sendable {
    private static let inserters = 4, highest = 1_000_000

    private let cache = PurgeableCache<UInt64, UInt64>("over-limit", limit: ByteCount(highest))
    // Mutable state: atomics. `changes` is odd while the limit is being changed. A fence keeps the check of the cache
    // between two loads of `changes`. The others are only counted.
    private let changes = Atomic(0)
    private let isOver = Atomic(false)
    private let worstAfterInsert = Atomic(0)
    private let worstAfterChange = Atomic(0)
    private let checks = Atomic(0)

    struct Result {
        /// Largest excess of the costs over the limit, in bytes, after an insert and after a change of the limit.
        var afterInsert: Int
        var afterChange: Int
        /// Number of checks by inserters while the limit stood still.
        var checks: Int
        var changes: Int
    }

    static func measure(for length: Duration) throws -> Result {
        let subject = OverLimit()
        let threads = try (0...Self.inserters).map { number in
            guard let thread = PlainThread({ number == 0 ? subject.changeLimits() : subject.insert(UInt64(number)) })
            else {
                throw Failure.failed("cannot start a thread")
            }
            return thread
        }
        SteadyClock.sleep(length)
        subject.isOver.store(true, ordering: .relaxed)
        for thread in threads { thread.join() }
        let (checks, changes) = (subject.checks.load(ordering: .relaxed), subject.changes.load(ordering: .relaxed) / 2)
        guard checks > 1000, changes > 10 else {
            throw Failure.failed("the limit was hardly put to the test: \(checks) checks, \(changes) changes")
        }
        return Result(
            afterInsert: subject.worstAfterInsert.load(ordering: .relaxed),
            afterChange: subject.worstAfterChange.load(ordering: .relaxed),
            checks: checks,
            changes: changes)
    }

    private func insert(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        while !isOver.load(ordering: .relaxed) {
            let key = random.next() % 100_000
            cache.insert(key, forKey: key, cost: Int.random(in: 0...20_000, using: &random))
            check()
        }
    }

    private func changeLimits() {
        var random = SeededGenerator(seed: 99)
        while !isOver.load(ordering: .relaxed) {
            changes.wrappingAdd(1, ordering: .sequentiallyConsistent)
            cache.limit = ByteCount(Int.random(in: 0...Self.highest, using: &random))
            changes.wrappingAdd(1, ordering: .sequentiallyConsistent)
            worstAfterChange.max(cache.byteCount - cache.limit.bytes, ordering: .relaxed)
            SteadyClock.sleep(.microseconds(Int.random(in: 0...200, using: &random)))
        }
    }

    private func check() {
        let before = changes.load(ordering: .acquiring)
        let excess = cache.byteCount - cache.limit.bytes
        atomicMemoryFence(ordering: .acquiring)
        guard before % 2 == 0, changes.load(ordering: .relaxed) == before else { return }
        checks.wrappingAdd(1, ordering: .relaxed)
        worstAfterInsert.max(excess, ordering: .relaxed)
    }
}

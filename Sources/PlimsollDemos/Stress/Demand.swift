import Plimsoll
import Synchronization

/// The memory requested so far, releases not subtracted: an early release must not move the mark that measures the
/// reaction.
package final class Demand: Sendable {
    // Relaxed ordering: a sum, and a moment noted once; no other memory is published through them.
    private let total: Atomic<Int>
    private let crossing = Atomic<Int>(0)
    private let line: ByteCount

    /// Creates a counter.
    ///
    /// - Parameters:
    ///   - held: memory held at the start.
    ///   - line: demand at which the time is recorded.
    init(held: ByteCount, line: ByteCount) {
        total = Atomic(held.bytes)
        self.line = line
    }

    /// Adds `bytes` to the demand.
    func add(_ bytes: Int) {
        let (before, now) = total.wrappingAdd(bytes, ordering: .relaxed)
        if now >= line.bytes, before < line.bytes {
            crossing.store(Int(SteadyClock.now.inNanoseconds / 1000), ordering: .relaxed)
        }
    }

    /// Time at which the line was crossed; `nil` if the line was not crossed.
    var crossed: Duration? {
        let microseconds = crossing.load(ordering: .relaxed)
        return microseconds == 0 ? nil : .microseconds(microseconds)
    }
}

import Plimsoll
import Synchronization

/// What is asked of memory, whether or not something gives way: an early release must not move the mark it is measured by.
final class Demand: Sendable {
    // Relaxed: a sum, and a moment noted once; nothing else hangs on them.
    private let total: Atomic<Int>
    private let crossing = Atomic<Int>(0)
    private let line: ByteCount

    /// - Parameters:
    ///   - held: what is held at the start.
    ///   - line: the demand at which the moment is noted.
    init(held: ByteCount, line: ByteCount) {
        total = Atomic(held.bytes)
        self.line = line
    }

    /// So many more bytes were asked for.
    func add(_ bytes: Int) {
        let (before, now) = total.wrappingAdd(bytes, ordering: .relaxed)
        if now >= line.bytes, before < line.bytes { crossing.store(Int(SteadyClock.now.inNanoseconds / 1000), ordering: .relaxed) }
    }

    /// When the line was crossed, if it was.
    var crossed: Duration? {
        let microseconds = crossing.load(ordering: .relaxed)
        return microseconds == 0 ? nil : .microseconds(microseconds)
    }
}

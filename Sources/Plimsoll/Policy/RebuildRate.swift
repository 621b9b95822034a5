/// How long it takes to make a byte again, as seen in loads: their time over their bytes, of the last ones more than of those before.
///
/// Sums decay, not quotients: a thousand small values that are slow a byte must not outweigh the large ones that memory consists of.
struct RebuildRate: Sendable, Hashable {
    private var nanoseconds: Float
    private var bytes: Float

    /// Share of what was known that each load leaves. Some thirty loads then make up most of it: enough for one slow one to change little, and few enough for a
    /// service that has become slow to be noticed within a second at a few dozen loads a second.
    private static let memory: Float = 31 / 32

    /// Nothing seen yet.
    init() { (nanoseconds, bytes) = (0, 0) }

    /// Counts one load in. One without time or bytes says nothing.
    mutating func add(_ took: Duration, bytes count: Int) {
        guard took >= .zero, count > 0 else { return }
        nanoseconds = nanoseconds * Self.memory + Float(took.inNanoseconds)
        bytes = bytes * Self.memory + Float(count)
    }

    /// Nanoseconds a byte; `nil` before the first load.
    var nanosecondsPerByte: Double? { bytes > 0 ? Double(nanoseconds) / Double(bytes) : nil }

    /// The same in one word, to be kept in an atomic; zero for nothing seen.
    var bits: UInt64 { UInt64(nanoseconds.bitPattern) << 32 | UInt64(bytes.bitPattern) }

    init(bits: UInt64) {
        nanoseconds = Float(bitPattern: UInt32(truncatingIfNeeded: bits >> 32))
        bytes = Float(bitPattern: UInt32(truncatingIfNeeded: bits))
    }
}

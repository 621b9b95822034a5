/// Time to rebuild a byte, as measured in loads: their time over their bytes, with more weight on recent loads.
///
/// The sums decay, not the quotients: a thousand small values that are slow a byte must not outweigh the large values
/// that memory consists of.
struct RebuildRate: Sendable, Hashable {
    private var nanoseconds: Float
    private var bytes: Float

    /// Decay factor for each load. Some thirty loads then make up most of the rate. So a single slow load changes
    /// little. At a few dozen loads a second, a service that has become slow is noticed within a second.
    private static let memory: Float = 31 / 32

    /// Creates a rate without loads.
    init() { (nanoseconds, bytes) = (0, 0) }

    /// Adds one load. Ignores a load without time or bytes.
    mutating func add(_ took: Duration, bytes count: Int) {
        guard took >= .zero, count > 0 else { return }
        nanoseconds = nanoseconds * Self.memory + Float(took.inNanoseconds)
        bytes = bytes * Self.memory + Float(count)
    }

    /// Nanoseconds a byte; `nil` before the first load.
    var nanosecondsPerByte: Double? { bytes > 0 ? Double(nanoseconds) / Double(bytes) : nil }

    /// The rate in one word, for storage in an atomic; zero before the first load.
    var bits: UInt64 { UInt64(nanoseconds.bitPattern) << 32 | UInt64(bytes.bitPattern) }

    init(bits: UInt64) {
        nanoseconds = Float(bitPattern: UInt32(truncatingIfNeeded: bits >> 32))
        bytes = Float(bitPattern: UInt32(truncatingIfNeeded: bits))
    }
}

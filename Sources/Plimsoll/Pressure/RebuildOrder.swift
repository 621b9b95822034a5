/// The order in which purgeables of one `RebuildCost` release: the fastest to rebuild a byte first. Purgeables of
/// similar speed release together, each in proportion to the bytes held. Purgeables with an unknown rebuild time rank
/// at the median. Allocates nothing.
///
///     var order = RebuildOrder(0..<count, rate)
///     while order.advance(0..<count, rate) {
///         for index in 0..<count where order.includes(rate(index)) { … }
///     }
struct RebuildOrder: Sendable {
    /// Factor of the lowest rate up to which rates count as the same. No cache should be emptied for a few per cent
    /// that the next loads may turn around (T25).
    static let likeness = 2.0

    /// Median of the known rates; zero if none is known.
    private let middle: Double
    private var lowest = -Double.infinity
    private var highest = -Double.infinity

    /// - Parameters:
    ///   - holders: numbers of the purgeables.
    ///   - rate: nanoseconds a byte of a purgeable; `nil` if unknown. Invalid times count as unknown.
    init(_ holders: Range<Int>, _ rate: (Int) -> Double?) {
        var known = 0
        for index in holders { if Self.valid(rate(index)) != nil { known += 1 } }
        var middle = 0.0
        // By counting, because sorting needs memory; there are tens of purgeables.
        for index in holders {
            guard let candidate = Self.valid(rate(index)) else { continue }
            var less = 0, equal = 0
            for other in holders {
                guard let rate = Self.valid(rate(other)) else { continue }
                if rate < candidate { less += 1 } else if rate == candidate { equal += 1 }
            }
            if less <= (known - 1) / 2, (known - 1) / 2 < less + equal { middle = candidate }
        }
        self.middle = middle
    }

    /// Advances to the next group; returns false after the last one.
    mutating func advance(_ holders: Range<Int>, _ rate: (Int) -> Double?) -> Bool {
        var next = Double.infinity
        for index in holders {
            let place = place(of: rate(index))
            if place > highest { next = min(next, place) }
        }
        guard next < .infinity else { return false }
        (lowest, highest) = (next, next * Self.likeness)
        return true
    }

    /// Returns true if a purgeable with that rate is in the current group.
    func includes(_ rate: Double?) -> Bool {
        let place = place(of: rate)
        return place >= lowest && place <= highest
    }

    /// Returns the sort key of a purgeable with that rate.
    func place(of rate: Double?) -> Double { Self.valid(rate) ?? middle }

    private static func valid(_ rate: Double?) -> Double? {
        rate.flatMap { $0.isFinite && $0 >= 0 && $0 < 1e300 ? $0 : nil }
    }
}

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

    /// Adds one load. Ignores a load with a negative time or without bytes.
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

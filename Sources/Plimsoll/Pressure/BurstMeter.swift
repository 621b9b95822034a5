/// Learns how much memory a service takes in a burst: the rise of unreclaimable memory within a second, without the
/// growth of registered caches.
///
/// A single allocation of 60 MiB is no lasting growth of 6 GB/s. The size, not the speed, determines how much to keep
/// free for the next burst. The meter remembers the largest recent burst with a half-life. So when bursts end, their
/// memory comes back to the caches within minutes.
struct BurstMeter: Sendable {
    /// Half-life of the largest burst, in seconds.
    private let halfLife: Double
    private var last: (pinned: ByteCount, charged: ByteCount, at: Duration)?
    /// Unreclaimable memory less the growth of caches, summed up from readings; only differences within the window mean
    /// anything.
    private var height = ByteCount.zero
    private var least = RecentLeast(span: Self.window / 2)
    private var largest = 0.0
    private var peak = ByteCount.zero

    /// Rise of the present burst above the minimum of the last second.
    private(set) var rise = ByteCount.zero
    /// Growth that outlasts bursts: growth of the minimum over the last second.
    private(set) var lasting = GrowthMeter(smoothing: 1)

    static let window = Duration.seconds(1)
    /// Factor of the largest recent burst up to which a burst counts as usual.
    static let likeness = 1.25

    init(halfLife: Duration = PressureThresholds.standard.burstHalfLife) { self.halfLife = halfLife.inSeconds }

    /// Largest recent burst that has ended.
    var usual: ByteCount { ByteCount(Int(min(largest, 1e18))) }
    /// Bytes of a usual burst that may still come.
    var toCome: ByteCount { max(.zero, usual - rise) }
    /// True if the present burst exceeds the recent ones: growth that may not end.
    var isUnusual: Bool { Double(rise.bytes) > largest * Self.likeness }

    mutating func add(pinned: ByteCount?, charged: ByteCount, at: Duration) {
        guard let pinned else {
            restart()
            return
        }
        guard let last, at > last.at else {
            if self.last == nil {
                self.last = (pinned, charged, at)
                _ = least.add(height, at: at)
            }
            return
        }
        // The last reading is valid until this one: the growth since then counts as sudden.
        _ = least.add(height, at: at)
        // Memory that caches release need not have reached the kernel, so only their growth is subtracted.
        height = height + (pinned - last.pinned) - max(.zero, charged - last.charged)
        self.last = (pinned, charged, at)
        largest *= pow2(-(at - last.at).inSeconds / halfLife)
        let floor = least.add(height, at: at)
        rise = max(.zero, height - floor)
        peak = max(peak, rise)
        // A burst is over once half of the rise has gone, or has become usual.
        if rise <= peak * 0.5 {
            largest = max(largest, Double(peak.bytes))
            peak = rise
        }
        lasting.add(pinned: floor, charged: .zero, at: at)
    }

    /// Forgets the present burst but not the usual size, because after a gap differences mean nothing.
    mutating func restart() {
        last = nil
        height = .zero
        least = RecentLeast(span: Self.window / 2)
        peak = .zero
        rise = .zero
        lasting = GrowthMeter(smoothing: 1)
    }

    /// Returns 2 to the power of `exponent`, for exponents from -1 to 0 to within a thousandth, without libm; halves
    /// the result for each further -1.
    private func pow2(_ exponent: Double) -> Double {
        var (exponent, factor) = (max(-64, min(0, exponent)), 1.0)
        while exponent < -1 { (exponent, factor) = (exponent + 1, factor / 2) }
        // Taylor series of e to the power of x * ln 2, four terms.
        let x = exponent * 0.693_147_180_559_945
        return factor * (1 + x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5)))))
    }
}

/// The minimum over the last one to two spans of time.
struct RecentLeast: Sendable {
    private var (current, previous) = (ByteCount.max, ByteCount.max)
    private var began = Duration.zero
    private let span: Duration

    init(span: Duration) { self.span = span }

    /// Adds `value` and returns the minimum.
    mutating func add(_ value: ByteCount, at now: Duration) -> ByteCount {
        let age = now - began
        if age >= span + span || age < .zero {
            (current, previous, began) = (.max, .max, now)
        } else if age >= span {
            (current, previous, began) = (.max, current, now)
        }
        current = min(current, value)
        return min(current, previous)
    }
}

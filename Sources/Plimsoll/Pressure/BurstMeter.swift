/// Learns how much memory a service takes in a burst: how far what cannot be reclaimed rises within a second, what registered caches take apart.
///
/// A single allocation of 60 MiB is no growth of 6 GB/s that lasts. Its size, not its speed, says what has to be kept free for the next one. The largest burst of
/// late is remembered, and forgotten by halves: the memory of a service whose bursts end comes back to its caches within minutes.
struct BurstMeter: Sendable {
    /// After so many seconds the largest burst counts for half.
    private let halfLife: Double
    private var last: (pinned: ByteCount, charged: ByteCount, at: Duration)?
    /// What cannot be reclaimed less what caches took, summed up from readings; only differences within the window mean anything.
    private var height = ByteCount.zero
    private var least = RecentLeast(span: Self.window / 2)
    private var largest = 0.0
    private var peak = ByteCount.zero

    /// How far the present burst has risen above the least of the last second.
    private(set) var rise = ByteCount.zero
    /// Growth that outlasts bursts: of the least of each last second.
    private(set) var lasting = GrowthMeter(smoothing: 1)

    static let window = Duration.seconds(1)
    /// A burst is a usual one up to this many times the largest of late.
    static let likeness = 1.25

    init(halfLife: Duration = PressureThresholds.standard.burstHalfLife) { self.halfLife = halfLife.inSeconds }

    /// The largest burst of late that has ended.
    var usual: ByteCount { ByteCount(Int(min(largest, 1e18))) }
    /// What of a usual burst may still come.
    var toCome: ByteCount { max(.zero, usual - rise) }
    /// Whether the present burst is larger than those of late: growth of which nothing says that it will end.
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
        // The last reading stands until this one: what has come since then came at once, as far as anyone can tell.
        _ = least.add(height, at: at)
        // What caches give back need not have reached the kernel, so only what they take is theirs.
        height = height + (pinned - last.pinned) - max(.zero, charged - last.charged)
        self.last = (pinned, charged, at)
        largest *= pow2(-(at - last.at).inSeconds / halfLife)
        let floor = least.add(height, at: at)
        rise = max(.zero, height - floor)
        peak = max(peak, rise)
        // Over once half of it has gone, or has become what is usual.
        if rise <= peak * 0.5 {
            largest = max(largest, Double(peak.bytes))
            peak = rise
        }
        lasting.add(pinned: floor, charged: .zero, at: at)
    }

    /// Forgets what goes on now, not what bursts are like: after a gap differences mean nothing.
    mutating func restart() {
        last = nil
        height = .zero
        least = RecentLeast(span: Self.window / 2)
        peak = .zero
        rise = .zero
        lasting = GrowthMeter(smoothing: 1)
    }

    /// 2 to the power of `exponent`, for exponents from -1 to 0 to within a thousandth, without libm; less than that is taken in halves.
    private func pow2(_ exponent: Double) -> Double {
        var (exponent, factor) = (max(-64, min(0, exponent)), 1.0)
        while exponent < -1 { (exponent, factor) = (exponent + 1, factor / 2) }
        // Taylor's series of e to the power of x * ln 2, four terms.
        let x = exponent * 0.693_147_180_559_945
        return factor * (1 + x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5)))))
    }
}

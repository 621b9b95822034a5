import Synchronization

/// A rate that falls with the extent: samples, frames, log lines or outgoing requests per second (C38).
///
/// Code that works at this rate reads `rate` each time. In the foreground the rate is `full`, or a share of `full`
/// when memory is short. In the background, and at the ladder's rung `quiesce`, the rate is at most `background`. In
/// a paused process the rate is 0.
public final class RateKnob: Quiescable {
    public let name: String
    public let workClass: String?
    /// The rate in the foreground.
    public let full: Double
    /// The highest rate in the background.
    public let background: Double
    // Relaxed: a single independent number.
    private let bits: Atomic<UInt64>

    /// Creates a knob at `full`, until a set lowers the rate.
    ///
    /// - Parameters:
    ///   - name: name used in reports.
    ///   - full: rate in the foreground, in any unit; at least 0.
    ///   - background: highest rate in the background, at least 0.
    ///   - workClass: class of work that the knob serves. A lease on the class keeps the rate up
    ///     (`QuiesceSet.lease`).
    public init(_ name: String, full: Double, background: Double = 0, workClass: String? = nil) {
        precondition(
            full >= 0 && background >= 0,
            "rate knob \"\(name)\": full \(full), background \(background); rates are at least 0")
        self.name = name
        self.full = full
        self.background = background
        self.workClass = workClass
        bits = Atomic(full.bitPattern)
    }

    /// The rate in force, 0 for none: one atomic load, from any thread.
    public var rate: Double { Double(bitPattern: bits.load(ordering: .relaxed)) }

    /// The time between two events if the rate is in events per second; `nil` for never.
    public var interval: Duration? {
        let rate = rate
        return rate > 0 ? .seconds(1 / rate) : nil
    }

    public func quiesce(to extent: QuiesceExtent) { bits.store(rate(in: extent).bitPattern, ordering: .relaxed) }

    private func rate(in extent: QuiesceExtent) -> Double {
        if extent.isPaused { return 0 }
        if extent.share == .least { return min(full, background) }
        let narrowed =
            switch extent.share {
            case .whole: full
            case .half: full / 2
            case .quarter, .least: full / 4
            }
        return extent.profile == .foreground ? narrowed : min(narrowed, background)
    }
}

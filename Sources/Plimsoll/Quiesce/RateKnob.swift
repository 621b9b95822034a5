import Synchronization

/// A rate that goes down with what may go on: samples, frames, log lines or requests to others a second (C38).
///
/// Whoever works at that rate asks `rate` each time. In the foreground it is `full`, or the share of it that a shortage of memory leaves; in the
/// background, and at the ladder's rung `quiesce`, `background` at most; in a paused process 0.
public final class RateKnob: Quiescable {
    public let name: String
    public let workClass: String?
    /// The rate in the foreground.
    public let full: Double
    /// The most in the background.
    public let background: Double
    // Relaxed: a number on its own.
    private let bits: Atomic<UInt64>

    /// A knob at `full` until it is in a set that says otherwise.
    ///
    /// - Parameters:
    ///   - name: what it is called in reports.
    ///   - full: the rate in the foreground, in whatever unit the caller counts; at least 0.
    ///   - background: the most in the background, at least 0.
    ///   - workClass: the class of work it serves; a lease on it keeps it going (`QuiesceSet.lease`).
    public init(_ name: String, full: Double, background: Double = 0, workClass: String? = nil) {
        precondition(full >= 0 && background >= 0, "rate knob \"\(name)\": full \(full), background \(background); rates are at least 0")
        self.name = name
        self.full = full
        self.background = background
        self.workClass = workClass
        bits = Atomic(full.bitPattern)
    }

    /// The rate in force, 0 for none: one atomic load, from any thread.
    public var rate: Double { Double(bitPattern: bits.load(ordering: .relaxed)) }

    /// The time from one to the next at a rate in times a second; `nil` for never.
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

/// Time until the next reading, from the danger and from the cost of a reading.
///
/// Uses earlyoom's idea (time = headroom / fastest fill) with two speeds. Far from the line ordinary work fills memory;
/// near it, huge-page faults do.
struct Pace: Sendable {
    /// Longest interval: limits are moved at run time and no file notifies of that.
    static let longest = Duration.seconds(1)
    static let shortest = Duration.milliseconds(1)
    /// Fill rate assumed far from the line. Faster sustained growth was not seen without huge pages and several
    /// threads.
    static let ordinaryFill = 400e6
    /// Fill rate assumed near the line. Huge-page faults reach 10 GB/s (measured); twice that gives two readings before
    /// memory is full.
    static let fastestFill = 20e9
    /// Share of a processor that turns of the loop may take while nothing grows. Waking an idle processor costs more
    /// than the turn. In a virtual machine 75 us were measured beside a turn of 55. A turn itself takes 5 us right
    /// after another one.
    static let costShare = 0.0015

    /// - Parameters:
    ///   - assessment: assessment of the last reading.
    ///   - reading: that reading.
    ///   - holds: true if a purge could release anything; otherwise there is nothing to hurry for.
    ///   - rings: true if the kernel itself wakes the loop when the warning margin is crossed.
    ///   - turnCost: processor time of a turn of the loop.
    static func interval(
        after assessment: PressureAssessment, _ reading: PressureReading, holds: Bool, rings: Bool,
        turnCost: Duration, thresholds: PressureThresholds
    ) -> Duration {
        guard holds, let limit = reading.limit, let available = reading.available else { return longest }
        let left = Double(max(available, .zero).bytes)
        let near = available < thresholds.warningMargin.below(limit) * 1.5

        var seconds = near ? left / fastestFill : (rings ? 1 : left / ordinaryFill)
        // Use the fastest growth seen: even a usual burst needs readings.
        let surge = Double(assessment.surge.bytes)
        let timeLeft = min(assessment.timeLeft?.inSeconds ?? .infinity, surge > 0 ? left / surge : .infinity)
        seconds = min(seconds, timeLeft / 8)
        // No danger: the cost of a reading bounds the rate.
        if timeLeft > 1 { seconds = max(seconds, turnCost.inSeconds / costShare) }
        return min(longest, max(shortest, .seconds(seconds)))
    }
}

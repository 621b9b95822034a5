/// How long to wait until the next look, from the danger and from what looking costs.
///
/// earlyoom's idea (time = headroom / fastest fill) with two speeds: memory that is filled by ordinary work far from
/// the line, and by huge-page faults near it.
struct Pace: Sendable {
    /// Never longer: limits are moved at run time and no file tells of it.
    static let longest = Duration.seconds(1)
    static let shortest = Duration.milliseconds(1)
    /// Far from the line: faster sustained growth than this was not seen without huge pages and several threads.
    static let ordinaryFill = 400e6
    /// Near the line: 10 GB/s is what huge-page faults reach (measured), looked at twice before it is over.
    static let fastestFill = 20e9
    /// The share of a processor that the turns may take while nothing grows. Waking an idle processor up costs more than the turn: in a
    /// virtual machine 75 us beside a turn of 55 were measured, and a turn itself takes 5 us when it has just been taken.
    static let costShare = 0.0015

    /// - Parameters:
    ///   - assessment: what the last reading meant.
    ///   - reading: that reading.
    ///   - holds: whether anything is held that a purge could let go of; otherwise there is nothing to hurry for.
    ///   - rings: the kernel itself wakes us when the warning margin is crossed.
    ///   - turnCost: processor time of a turn of the loop.
    static func interval(
        after assessment: PressureAssessment, _ reading: PressureReading, holds: Bool, rings: Bool,
        turnCost: Duration, thresholds: PressureThresholds
    ) -> Duration {
        guard holds, let limit = reading.limit, let available = reading.available else { return longest }
        let left = Double(max(available, .zero).bytes)
        let near = available < thresholds.warningMargin.below(limit) * 1.5

        var seconds = near ? left / fastestFill : (rings ? 1 : left / ordinaryFill)
        // By the fastest growth seen: a burst is to be looked at although it is a usual one.
        let surge = Double(assessment.surge.bytes)
        let timeLeft = min(assessment.timeLeft?.inSeconds ?? .infinity, surge > 0 ? left / surge : .infinity)
        seconds = min(seconds, timeLeft / 8)
        // Nothing is coming: looking is bounded by what it costs.
        if timeLeft > 1 { seconds = max(seconds, turnCost.inSeconds / costShare) }
        return min(longest, max(shortest, .seconds(seconds)))
    }
}

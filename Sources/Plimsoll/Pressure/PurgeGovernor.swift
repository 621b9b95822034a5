/// Decides when a shortfall may start a purge: one at a time, and not again after a useless one (T21, K30), unless the
/// danger has grown since.
struct PurgeGovernor: Sendable {
    /// True while a purge is running.
    private(set) var isRunning = false
    /// True if the last purge brought nothing back.
    private(set) var lastWasUseless = false
    private var end = Duration.zero
    private var holdOff = Duration.zero
    private var trim = Duration.zero
    private var availableThen: ByteCount?

    /// Factor of the memory available after a purge. If available memory falls below that, the next purge need not
    /// wait.
    static let worsening = 0.75

    /// Returns true if a purge may start now; the purge then counts as running until `finished`.
    ///
    /// Trimming the heap stops other threads' allocations, so trims may take a twentieth of the time, at the critical
    /// level a fifth.
    mutating func start(at now: Duration, level: PressureLevel, available: ByteCount?) -> Bool {
        if isRunning { return false }
        let rest = max(holdOff, trim * (level == .critical ? 4 : 19))
        if now - end < rest {
            guard let available, let availableThen, available < availableThen * Self.worsening else { return false }
        }
        isRunning = true
        return true
    }

    /// Records the end of a purge.
    ///
    /// - Parameters:
    ///   - report: result of the purge.
    ///   - available: memory that can be allocated afterwards.
    mutating func finished(_ report: ActionReport, at now: Duration, available: ByteCount?) {
        isRunning = false
        // Volatile memory released says nothing about the next pass: that memory was available before.
        let fall = report.heapFall
        // Even if nothing was released, the heap may still have had memory to give back.
        let nothing = report.released < min(.mebibytes(1), report.asked)
        lastWasUseless = fall < (nothing ? .mebibytes(1) : report.released * 0.1)
        holdOff = !lastWasUseless ? .zero : nothing ? .seconds(30) : max(.seconds(5), report.took * 20)
        trim = report.trim
        // The reading of `now` may be older than the end, and still show the shortage that the purge has met.
        end = max(now, report.began + report.took)
        availableThen = available
    }

    /// Records that a purge hung in a purgeable and was given up; the next one skips that purgeable.
    mutating func abandoned() { isRunning = false }

    /// Forgets the results of purges, because memory is plentiful again.
    mutating func reset() {
        lastWasUseless = false
        holdOff = .zero
        trim = .zero
    }
}

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
    ///   - holds: true if a purge or another action could free memory; otherwise there is nothing to hurry for.
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

/// Limits how fast caches may grow back after a shortage: not at all while readings show one, then in steps (T24,
/// CacheLib's rate window).
struct RefillRamp: Sendable {
    /// Share of the room that is granted now.
    private var share = 1.0
    private var nextStep = Duration.zero
    private var isShort = false

    /// True if all the room is granted.
    var isFull: Bool { share >= 1 }

    static let step = Duration.seconds(1)
    static let firstShare = 0.125

    /// Returns the bytes that caches may take until the next reading.
    ///
    /// - Parameters:
    ///   - room: bytes left above the line; `nil` if no limit is known, and then the result is unbounded.
    ///   - level: the level that readings support now.
    mutating func allowance(room: ByteCount?, level: PressureLevel, at now: Duration) -> ByteCount {
        guard let room else {
            (share, isShort) = (1, false)
            return .max
        }
        isShort = level > .normal
        if isShort {
            share = Self.firstShare
            nextStep = now + Self.step
        } else if share < 1, now >= nextStep {
            share = min(1, share * 2)
            nextStep = now + Self.step
        }
        return portion(of: room)
    }

    /// Returns the share last granted, applied to another room.
    func portion(of room: ByteCount) -> ByteCount { isShort ? .zero : isFull ? room : room * share }
}

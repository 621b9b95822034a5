/// Turns readings into assessments. A value: no clock, no lock, no kernel.
///
/// Five kinds of evidence are fused, headroom first: headroom, growth, stall, limit events and lowered limits (see
/// `PressureEvidence`). Announcements of a supervisor or the service manager are taken in as well. In 12 of 12 measured kills of an
/// anonymous ramp without swap no stall signal fired at all, so stall only indicates sustained trouble.
package struct PressureAssessor: Sendable {
    /// The numbers in use.
    package let thresholds: PressureThresholds

    private var level = PressureLevel.normal
    private var present = PressureLevel.normal
    /// Time of the last reading that supported the level in force, and of the last one with less available than caches
    /// leave free.
    private var lastSupported = Duration.zero, lastTight = Duration.zero
    /// Evidence that last supported the level in force.
    private var support = PressureEvidence()
    private var previous: PressureReading?
    private var surge = GrowthMeter()
    private var burst: BurstMeter
    private var stall = StallMeter()

    /// Creates an assessor without history.
    package init(thresholds: PressureThresholds = .standard) {
        self.thresholds = thresholds
        burst = BurstMeter(halfLife: thresholds.burstHalfLife)
    }

    /// Gap after which rates mean nothing: the process was frozen or the machine slept.
    static let longestGap = Duration.seconds(30)

    /// Factor above the fall line up to which purges free memory and caches keep memory free. Without this clearance, a
    /// service whose caches fill its memory settles between the lines of fall and rise, at warning for good. A heap
    /// that replaces entries of many sizes grows a little all the time.
    static let clearance = 1.15

    /// Judges `reading`. Pass readings in order of time; one out of order is judged without history.
    package mutating func assess(_ reading: PressureReading) -> PressureAssessment {
        forgetAfterGap(before: reading)
        forgetGrowth(before: reading)
        surge.add(pinned: reading.pinned, charged: reading.charged, at: reading.at)
        burst.add(pinned: reading.pinned, charged: reading.charged, at: reading.at)
        stall.add(reading.stall?.some, at: reading.at)

        // A burst larger than the recent ones is growth that may last; of a usual burst only the growth afterwards
        // counts.
        let growth = burst.isUnusual ? max(surge.perSecond, burst.lasting.perSecond) : burst.lasting.perSecond
        var result = PressureAssessment(
            at: reading.at, growth: growth, surge: surge.perSecond, burst: burst.usual, stallShare: stall.share)
        observe(reading, into: &result)
        hold(reading, into: &result)
        previous = reading
        return result
    }

    private mutating func forgetAfterGap(before reading: PressureReading) {
        guard let last = previous?.at else {
            (lastSupported, lastTight) = (reading.at, reading.at)
            return
        }
        if reading.at - last > Self.longestGap || reading.at < last {
            surge = GrowthMeter()
            burst.restart()
            stall = StallMeter()
            previous = nil
            (lastSupported, lastTight) = (reading.at, reading.at)
        }
    }

    /// Forgets growth where the limit has changed. Another group may have the tightest limit now, and the difference
    /// between the memory of two groups is no growth.
    private mutating func forgetGrowth(before reading: PressureReading) {
        guard let last = previous?.limit, let limit = reading.limit, limit != last else { return }
        surge = GrowthMeter()
        burst.restart()
    }

    /// Judges this reading alone.
    private func observe(_ reading: PressureReading, into result: inout PressureAssessment) {
        func raise(to level: PressureLevel, because evidence: PressureEvidence) {
            result.observed = max(result.observed, level)
            result.evidence.insert(evidence)
        }
        if stall.share >= thresholds.stallWarning { raise(to: .warning, because: .stall) }
        if let announced = reading.announced, announced > .normal { raise(to: announced, because: .announced) }

        guard let limit = reading.limit, let available = reading.available else { return }
        let warningMargin = thresholds.warningMargin.below(limit)
        let criticalMargin = thresholds.criticalMargin.below(limit)
        let short = available < warningMargin

        if available < criticalMargin {
            raise(to: .critical, because: .headroom)
        } else if short {
            raise(to: .warning, because: .headroom)
        }

        if result.growth > .zero {
            let timeLeft = Duration.seconds(Double(max(available, .zero).bytes) / Double(result.growth.bytes))
            result.timeLeft = timeLeft
            if available < thresholds.growthFloor.below(limit) {
                // Growth that has not lasted may still end. Release memory, but let work go on while the margin is
                // whole.
                let lasting = Duration.seconds(
                    Double(max(available, .zero).bytes) / Double(max(1, burst.lasting.perSecond.bytes)))
                if timeLeft < thresholds.criticalTimeLeft, short || lasting < thresholds.criticalTimeLeft {
                    raise(to: .critical, because: .growth)
                } else if timeLeft < thresholds.warningTimeLeft {
                    raise(to: .warning, because: .growth)
                }
            }
        }

        if short {
            if stall.share >= thresholds.stallCritical { raise(to: .critical, because: .stall) }
            // Counted while little is available; with page cache to reclaim the same counts are harmless (K24).
            if let now = reading.events, let before = previous?.events,
                now.max > before.max || now.high > before.high || now.oom > before.oom
            {
                raise(to: .warning, because: .limitEvents)
            }
            if let before = previous?.limit, limit < before { raise(to: .warning, because: .limitLowered) }
        }

        // Free enough to be well clear of the line where the level falls, plus the growth meanwhile: a purge of 256 MiB
        // was measured at 31 to 40 ms, a first trim of the heap at 10 to 100 ms.
        let line = line(below: limit)
        // In or before a usual burst: keep the rest of the burst free, above the margin. The end of the burst frees the
        // other memory.
        let toCome = min(burst.toCome, limit * thresholds.burstReserve),
            forBursts = warningMargin * Self.burstClearance + toCome
        if result.observed > .normal, !result.evidence.isDisjoint(with: .ofBytes) {
            let isUsual = !burst.isUnusual && burst.rise > burst.usual * 0.25
            let reserve = min(result.growth * 0.25, warningMargin)
            result.shortfall = max(.zero, (isUsual ? min(forBursts, line + reserve) : line + reserve) - available)
        }
        result.room = max(.zero, available - max(line, forBursts))
        result.roomToLine = max(.zero, available - line)
    }

    /// Returns the memory that caches leave free of a limit.
    private func line(below limit: ByteCount) -> ByteCount {
        thresholds.warningMargin.below(limit) * (thresholds.fallFactor * Self.clearance)
    }

    /// Factor of the warning margin that stays free at the height of a usual burst, so that no level rises.
    static let burstClearance = 1.1

    /// Raises the level at once. Lowers the level one step when the lower line has held: soon if as much is free as
    /// caches leave.
    private mutating func hold(_ reading: PressureReading, into result: inout PressureAssessment) {
        present = max(present, result.observed)
        while present > result.observed, isClear(of: present, reading) { present = present.below }
        result.present = present

        if result.observed >= level || !isClear(of: level, reading) { lastSupported = reading.at }
        if let limit = reading.limit, let available = reading.available, available < line(below: limit) {
            lastTight = reading.at
        }
        // Stall and announcements involve no bytes, so no reading of bytes ends them. The sender of an announcement can
        // take it back.
        if result.observed >= level { support = result.evidence }
        if reading.announced == .normal { support.remove(.announced) }
        if result.observed > level {
            level = result.observed
        } else if level > .normal {
            // A reading that supports the level never lowers the level, even with holds of zero.
            if reading.at > lastSupported, reading.at >= earliestFall(by: reading) {
                level = level.below
                lastSupported = reading.at
            }
        }
        result.level = level
        if level > result.observed { (result.heldUntil, result.heldFor) = (earliestFall(by: reading), support) }
    }

    /// Returns the time at which the level falls a step if readings are clear of its line from `reading` on, and leave
    /// no more free.
    private func earliestFall(by reading: PressureReading) -> Duration {
        let late = lastSupported + thresholds.fallHold
        guard support.isDisjoint(with: .withoutBytes), level > present,
            lastTight < reading.at || thresholds.recoveryHold == .zero
        else {
            return late
        }
        return min(late, max(lastSupported + thresholds.recoveryHold, lastTight + thresholds.recoveryHold))
    }

    /// Returns true if `reading` lies beyond the lower line at which `level` may fall.
    private func isClear(of level: PressureLevel, _ reading: PressureReading) -> Bool {
        guard level > .normal else { return true }
        let stalled = level == .critical ? thresholds.stallCritical : thresholds.stallWarning
        let isStalled = stall.share >= stalled / thresholds.fallFactor
        guard let limit = reading.limit, let available = reading.available else {
            return level == .critical || !isStalled
        }
        let isShort = available < thresholds.warningMargin.below(limit) * thresholds.fallFactor
        if level == .warning { return !isStalled && !isShort }
        // Stall is critical only while memory is short as well (K13).
        return !(isStalled && isShort) && available >= thresholds.criticalMargin.below(limit) * thresholds.fallFactor
    }
}

/// Growth of unreclaimable memory, less the growth of registered caches.
struct GrowthMeter: Sendable {
    private var last: (pinned: ByteCount, charged: ByteCount, at: Duration)?
    private var rate = 0.0

    /// Growth in bytes a second, never negative.
    var perSecond: ByteCount { ByteCount(rate < 1 ? 0 : Int(min(rate, 1e15))) }

    private let smoothing: Double

    /// - Parameter smoothing: time constant in seconds; with 0.05 the kernel's per-processor batches do not pass for a
    ///   burst.
    init(smoothing: Double = 0.05) { self.smoothing = smoothing }

    mutating func add(pinned: ByteCount?, charged: ByteCount, at: Duration) {
        guard let pinned else {
            last = nil
            return
        }
        guard let last else {
            self.last = (pinned, charged, at)
            return
        }
        let seconds = (at - last.at).inSeconds
        guard seconds > 0 else { return }
        // Subtract only the growth of caches. Memory that they release need not have reached the kernel, and would look
        // like growth.
        let own = max(.zero, charged - last.charged)
        let present = Double((pinned - last.pinned - own).bytes) / seconds
        rate = max(0, rate + (present - rate) * (seconds / (smoothing + seconds)))
        self.last = (pinned, charged, at)
    }
}

/// Share of time stalled, smoothed over about ten seconds, from the monotonic total.
struct StallMeter: Sendable {
    private var last: (total: Duration, at: Duration)?
    /// Share of time stalled, in `0...1`.
    private(set) var share = 0.0

    private static let smoothing = 10.0

    mutating func add(_ total: Duration?, at: Duration) {
        guard let total else {
            last = nil
            share = 0
            return
        }
        // A total that falls belongs to a new group (K12).
        guard let last, total >= last.total else {
            self.last = (total, at)
            return
        }
        // The kernel's file is read about once a second (K6). The same total sooner is the same read, not a calm spell.
        let seconds = (at - last.at).inSeconds
        guard seconds > 0, total != last.total || seconds >= 2 else { return }
        let present = min(1, (total - last.total).inSeconds / seconds)
        share += (present - share) * (seconds / (Self.smoothing + seconds))
        self.last = (total, at)
    }
}

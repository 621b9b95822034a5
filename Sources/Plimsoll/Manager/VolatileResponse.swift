import Synchronization

/// The response to volatile memory at each turn of the loop: sets the allowance for more volatile memory, and
/// requests work from the keeper.
struct VolatileResponse {
    private let parts: ManagerParts

    private var room = VolatileRoom()
    private var drops = DropWatch()
    private var trim = IdleTrim()
    private var idleAt = Duration.zero
    private var reportedAt: Duration?
    /// Upper bound of the time to the next reading, to keep the margin.
    private(set) var nextReadingWithin = Duration.seconds(3600)

    /// Pause between calls of `giveBackIdle`. Idle memory is recognized only after minutes, and each call wakes a
    /// thread.
    static let idlePause = Duration.seconds(10)
    /// Pause between two reports. A service that grows for minutes must not push all other reports out of the
    /// journal.
    static let reportPause = Duration.seconds(5)
    /// Shortest interval between readings for the margin. More frequent readings would cost more than a page fault
    /// that reclaims.
    static let shortestInterval = Duration.milliseconds(10)

    init(parts: ManagerParts) { self.parts = parts }

    private var isDryRun: Bool { parts.isDryRun.load(ordering: .relaxed) }

    /// - Parameters:
    ///   - ramp: share of the headroom that may be taken after a shortage.
    ///   - isPurging: true while a pass for a shortage is under way, which frees more than the margin.
    ///   - blank: a report to fill in.
    mutating func respond(
        to assessment: PressureAssessment, _ reading: PressureReading, ramp: RefillRamp, isPurging: Bool,
        blank: ActionReport
    ) {
        let verdict = room.judge(reading, growth: assessment.surge)
        let allowance = verdict.allowance == .max ? .max : ramp.portion(of: verdict.allowance)
        // The allowance excludes the excess: memory to be released must not be taken again.
        parts.volatileMeter.allow(isDryRun ? .max : allowance, since: reading.volatile - verdict.excess)
        nextReadingWithin = timeToNextReading(assessment, reading)
        report(assessment.at, blank)
        if let done = parts.keeper.takeTrim() { trim.finished(fall: done.fall, took: done.took, at: assessment.at) }
        guard !isDryRun, parts.keeper.isFree(for: reading) else { return }

        var request = VolatileKeeper.Request()
        request.excess = isPurging ? .zero : verdict.excess
        request.noticesDrops = drops.isDue(reading, isTight: verdict.isTight)
        if reading.volatile > .zero, assessment.at - idleAt >= Self.idlePause || assessment.at < idleAt {
            idleAt = assessment.at
            request.givesBackIdle = true
        }
        // A shortage has passes of its own, which trim. During a burst, freed memory is about to be used again.
        if !isPurging, assessment.present == .normal, assessment.surge < .mebibytes(4), parts.keeper.canTrim,
            let pinned = reading.pinned
        {
            let isHeldBack =
                assessment.room == .zero && reading.charged > .zero || allowance == .zero && reading.volatile > .zero
            request.trimsHeap = trim.isDue(at: assessment.at, pinned: pinned, isHeldBack: isHeldBack)
        }
        if parts.keeper.post(request, for: reading) { parts.purgeWorker.request() }
    }

    /// Returns the volatile memory to release before other purgeables are asked for `asked` bytes. As many bytes
    /// become free, so that no thread must reclaim in a page fault. Volatile memory counted as available before, so
    /// this release does not reduce the shortage.
    static func bytesToRelease(_ assessment: PressureAssessment, _ reading: PressureReading, asked: ByteCount)
        -> ByteCount
    {
        if assessment.shortfall == .zero { return reading.volatile * assessment.unknownShare }
        let free = min(reading.idle?.free ?? .max, reading.machineIdle?.free ?? .max)
        let margin = reading.limit.map { VolatileRoom.margin(below: $0) } ?? .zero
        return max(.zero, asked + margin - free)
    }

    /// Returns half of the time in which the observed growth uses up the free memory.
    private func timeToNextReading(_ assessment: PressureAssessment, _ reading: PressureReading) -> Duration {
        guard reading.volatile > .zero, assessment.surge > .mebibytes(1), let free = reading.idle?.free else {
            return .seconds(3600)
        }
        return max(Self.shortestInterval, .seconds(Double(free.bytes) / Double(assessment.surge.bytes) / 2))
    }

    /// Reports the findings and releases of the keeper.
    private mutating func report(_ now: Duration, _ blank: ActionReport) {
        if let reportedAt, now - reportedAt < Self.reportPause, now >= reportedAt { return }
        guard let findings = parts.keeper.takeFindings() else { return }
        reportedAt = now
        if findings.taken > .zero {
            var drops = blank
            drops.action = .noticeDrops
            drops.taken = findings.taken
            parts.report(drops)
        }
        if findings.asked > .zero {
            var room = blank
            room.action = .makeRoom
            room.asked = findings.asked
            room.releasedVolatile = findings.released
            room.after = findings.after
            room.before = Footprint(
                resident: findings.after.resident + findings.fall.resident,
                usage: findings.after.usage + findings.fall.usage)
            room.took = findings.took
            parts.report(room)
        }
    }
}

extension PressureAssessment {
    /// Share of the held bytes to release for an announcement or a simulation, which have a level but no byte
    /// count.
    var unknownShare: Double { observed == .critical ? 0.5 : 0.125 }
}

import Synchronization

extension ManagerStatus {
    /// More tasks than this are counted, not listed.
    public static let mostTasks = 64
}

extension ResourceManager {
    /// All that is known now: what is held, what is done, what was done and why.
    ///
    /// It may be asked at any rate and at any level: nothing on the path that frees memory waits for it, but for a few short locks, and nothing there allocates for
    /// it. Each holder is asked for its bytes, unless it is being called just then; one whose code does not return within a second is named
    /// (`HolderStatus.unansweredSeconds`). What it said last stands for it then.
    ///
    /// - Complexity: O(holders), and O(background tasks that run) but for a million of them no more than for some hundred.
    public var status: ManagerStatus {
        let entries = parts.purgeables.snapshot
        parts.poll.ask(entries)
        let now = parts.time.elapsed()
        let lifecycle = parts.lifecycle, readiness = lifecycle.readiness, capabilities = capabilities
        return ManagerStatus(
            atSeconds: now.inSeconds, level: "\(level)", isDryRun: isDryRun, memory: memoryStatus,
            holders: entries.map { HolderStatus($0, at: now) }, tasks: tasksStatus,
            lifecycle: LifecycleStatus(
                state: "\(lifecycle.state)", stage: "\(readiness.stage)", isReady: readiness.isReady, reason: readiness.reason,
                warming: readiness.warming, scenes: lifecycle.scenes.count),
            admissions: lifecycle.pausables.countingMembers.map { AdmissionStatus($0) }, counts: counts, actions: reports.map { ActionStatus($0) },
            footing: capabilities.footing.rawValue, signals: capabilities.signals)
    }

    /// The status, for tasks: holders that don't answer at once are waited for by a thread that isn't of the cooperative pool.
    package func takeStatus() async -> ManagerStatus {
        guard parts.purgeables.snapshot.contains(where: { !$0.isPrompt }) else { return status }
        return await withCheckedContinuation { continuation in
            parts.threads.run { () -> Void in continuation.resume(returning: self.status) }
        }
    }

    /// What has been counted since the manager was made.
    public var counts: ManagerCounts {
        parts.journal.tally.counts(superseded: parts.observers.superseded, overwritten: parts.journal.overwritten)
    }

    /// That part of the status alone. No holder is asked.
    package var memoryStatus: MemoryStatus? {
        parts.lastTurn.withLock { $0 }.map { MemoryStatus($0.reading, $0.assessment, policy.thresholds) }
    }

    /// The number of background tasks that have ended so far, those of present scenes included. A changed number means that there may be something to save.
    package var endedTasks: UInt64 {
        parts.lifecycle.scenes.reduce(UInt64(parts.tasks.tally.ended)) { $0 &+ UInt64($1.tasks.tally.ended) }
    }

    /// That part of the status alone.
    package var tasksStatus: TasksStatus {
        let books = [parts.tasks] + parts.lifecycle.scenes.map(\.tasks)
        let sum = books.reduce(into: BackgroundTaskShard.Tally()) { $0 += $1.tally }
        let oldest = books.flatMap { $0.statuses(atMost: ManagerStatus.mostTasks) }.sorted { $0.age > $1.age }
        return TasksStatus(
            running: sum.count, expiring: sum.expiring, ended: Int(sum.ended - sum.expired - sum.givenUp - sum.leaked), expired: Int(sum.expired),
            givenUp: Int(sum.givenUp), leaked: Int(sum.leaked), refused: Int(sum.refused),
            allowanceLeftSeconds: backgroundTimeRemaining?.inSeconds, oldest: oldest.prefix(ManagerStatus.mostTasks).map { TaskStatus($0) })
    }
}

extension MemoryStatus {
    init(_ reading: PressureReading, _ assessment: PressureAssessment, _ thresholds: PressureThresholds) {
        atSeconds = reading.at.inSeconds
        boundary = reading.boundary.rawValue
        limitBytes = reading.limit?.bytes
        warningLineBytes = reading.limit.map { ($0 - thresholds.warningMargin.below($0)).bytes }
        criticalLineBytes = reading.limit.map { ($0 - thresholds.criticalMargin.below($0)).bytes }
        (usageBytes, workingSetBytes, availableBytes) = (reading.usage.bytes, reading.workingSet.bytes, reading.available?.bytes)
        (residentBytes, chargedBytes, volatileBytes) = (reading.resident.bytes, reading.charged.bytes, reading.volatile.bytes)
        lazyFreedBytes = reading.lazyFreed?.bytes
        (stallSomeSeconds, stallFullSeconds) = (reading.stall?.some.inSeconds, reading.stall?.full.inSeconds)
        events = reading.events
        (observed, evidence) = ("\(assessment.observed)", "\(assessment.evidence)")
        (heldUntilSeconds, heldFor) = (assessment.heldUntil?.inSeconds, assessment.heldFor.map { "\($0)" })
        (present, burstBytes) = ("\(assessment.present)", assessment.burst.bytes)
        (shortfallBytes, roomBytes) = (assessment.shortfall.bytes, assessment.room?.bytes)
        (growthBytesPerSecond, timeLeftSeconds) = (assessment.growth.bytes, assessment.timeLeft?.inSeconds)
        stallShare = assessment.stallShare
    }
}

extension TaskStatus {
    init(_ status: BackgroundTaskStatus) {
        (name, ageSeconds, isExpiring, origin) = (status.name, status.age.inSeconds, status.isExpiring, status.origin)
        (completed, total) = (status.progress?.completed, status.progress?.total)
    }
}

extension AdmissionStatus {
    init(_ member: any CountingQuiescable) {
        let statistics = member.statistics
        name = member.name
        (running, waiting, limit) = (statistics.running, statistics.waiting, statistics.limit)
        (admitted, refused, expired) = (statistics.admitted, statistics.refused, statistics.expired)
        requests = member.requests
        // A member may tell any number; JSON has none for this one.
        refusedPerSecond = member.refusedPerSecond.flatMap { $0.isFinite ? $0 : nil }
    }
}

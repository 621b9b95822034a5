import Synchronization

extension ManagerStatus {
    /// Maximum number of listed tasks. Further tasks are only counted.
    package static let mostTasks = 64
    /// Maximum number of listed requests.
    package static let mostRequests = 10
}

extension ResourceManager {
    /// The registered purgeables whose entries can be sampled.
    package var sampledPurgeables: [any SampledPurgeable] {
        parts.purgeables.snapshot.compactMap { $0.purgeable as? any SampledPurgeable }
    }

    /// A snapshot of the manager's knowledge: held memory, ongoing work, and past actions with their evidence.
    ///
    /// May be read at any rate and at any level. The path that frees memory waits for a status only at a few short
    /// locks, and allocates nothing for a status. Each purgeable is asked for its bytes, unless a call into that
    /// purgeable is under way. A purgeable whose code does not return within a second is marked
    /// (`unansweredSeconds`); the status then shows the last answer.
    ///
    /// - Complexity: O(purgeables + scenes), plus O(running background tasks) up to a bound for the process and
    ///   for each scene: a million tasks cost no more than some hundred.
    public var status: ManagerStatus {
        let entries = parts.purgeables.snapshot
        parts.poll.ask(entries)
        let now = parts.time.elapsed()
        let capabilities = capabilities
        var status = ManagerStatus(
            atSeconds: now.inSeconds, level: "\(level)", isDryRun: isDryRun, memory: memoryStatus,
            holders: entries.map { HolderStatus($0, at: now) }, tasks: tasksStatus,
            lifecycle: LifecycleStatus(), admissions: [], counts: counts, actions: reports.map { ActionStatus($0) },
            moves: parts.moves.map { MoveStatus($0) }, requests: parts.requests.status,
            support: capabilities.support.rawValue, signals: capabilities.signals)
        for part in parts.joined.all { part.describe(in: &status) }
        return status
    }

    /// Returns the status, for callers in a task. A thread outside the cooperative pool waits for purgeables that
    /// may block.
    package func takeStatus() async -> ManagerStatus {
        guard parts.purgeables.snapshot.contains(where: { !$0.isPrompt }) else { return status }
        return await withCheckedContinuation { continuation in
            parts.threads.run { () -> Void in continuation.resume(returning: self.status) }
        }
    }

    /// Counts since the manager was created.
    package var counts: ManagerCounts {
        parts.journal.tally.counts(superseded: parts.observers.superseded, overwritten: parts.journal.overwritten)
    }

    /// The memory part of the status. Asks no purgeable.
    package var memoryStatus: MemoryStatus? {
        parts.lastTurn.withLock { $0 }.map { MemoryStatus($0.reading, $0.assessment, policy.thresholds) }
    }

    /// Number of background tasks that run, without those of scenes.
    package var runningTasks: Int { parts.tasks.count }

    /// Number of background tasks that have ended so far, those of present scenes included. A changed number means
    /// that there may be something to save.
    package var endedTasks: UInt64 {
        parts.sceneTasks.all.reduce(UInt64(parts.tasks.tally.ended)) { $0 &+ UInt64($1.tally.ended) }
    }

    /// The background-task part of the status.
    package var tasksStatus: TasksStatus {
        let registries = [parts.tasks] + parts.sceneTasks.all
        let sum = registries.reduce(into: BackgroundTaskShard.Tally()) { $0 += $1.tally }
        let oldest = registries.flatMap { $0.statuses(atMost: ManagerStatus.mostTasks) }.sorted { $0.age > $1.age }
        return TasksStatus(
            running: sum.count, expiring: sum.expiring, ended: Int(sum.ended - sum.expired - sum.givenUp - sum.leaked),
            expired: Int(sum.expired),
            givenUp: Int(sum.givenUp), leaked: Int(sum.leaked), refused: Int(sum.refused),
            allowanceLeftSeconds: backgroundTimeRemaining?.inSeconds,
            oldest: Array(oldest.prefix(ManagerStatus.mostTasks)))
    }
}

extension MemoryStatus {
    init(_ reading: PressureReading, _ assessment: PressureAssessment, _ thresholds: PressureThresholds) {
        atSeconds = reading.at.inSeconds
        boundary = reading.boundary.rawValue
        limitBytes = reading.limit?.bytes
        warningLineBytes = reading.limit.map { ($0 - thresholds.warningMargin.below($0)).bytes }
        criticalLineBytes = reading.limit.map { ($0 - thresholds.criticalMargin.below($0)).bytes }
        (usageBytes, workingSetBytes, availableBytes) = (
            reading.usage.bytes, reading.workingSet.bytes, reading.available?.bytes
        )
        (residentBytes, chargedBytes, volatileBytes) = (
            reading.resident.bytes, reading.charged.bytes, reading.volatile.bytes
        )
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

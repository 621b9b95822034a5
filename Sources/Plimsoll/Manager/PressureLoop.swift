import Synchronization

/// The control loop: read, assess, decide, act, wait. Runs on a thread of its own and keeps its state in locals.
///
/// No call of the loop can block. Releases run on the purge worker, observers on the delivery worker, and handlers
/// of background tasks on threads of their own. The loop supervises all these threads.
struct PressureLoop {
    let source: any PressureSource
    let policy: PressurePolicy
    let time: Timekeeper
    let parts: ManagerParts
    /// True if the loop reads memory and acts.
    let isEnabled: Bool
    /// Called at each turn; for `watch`, `record` and benchmarks.
    let onTurn: (@Sendable (PressureReading, PressureAssessment) -> Void)?

    func run() {
        defer { parts.firstTurn.end() }
        guard isEnabled else {
            parts.firstTurn.end()
            while !parts.inbox.isStopped { source.wait(atMost: Pace.longest) }
            return
        }
        var assessor = PressureAssessor(thresholds: policy.thresholds)
        var response = PressureResponse(policy: policy, parts: parts, source: source, time: time)
        var turnCost = Duration.microseconds(10)
        let recorder = parts.recorder.withLock { $0 }
        let recovery = max(Pace.shortest, policy.thresholds.recoveryHold / 2)
        var isFirst = true
        defer { parts.comeBy(next: nil) }
        // The last measured headroom soon becomes stale.
        defer { parts.room.publish(nil) }
        defer { parts.joined.forEach { $0.loopEnded() } }
        while !parts.inbox.isStopped {
            parts.comeBy(next: Pace.longest)
            let began = time.elapsed()
            let mark = parts.meter.heldBytes, volatileMark = parts.volatileMeter.heldBytes
            guard var reading = try? source.read(at: began) else {
                // No reading is possible at the moment. The source resolves its files again and states the reason
                // in its capabilities.
                endFirst(&isFirst)
                source.wait(atMost: Pace.longest)
                continue
            }
            (reading.charged, reading.volatile) = (mark, volatileMark)
            parts.joined.forEach { $0.noticed(limit: reading.limit) }
            var assessment = assessor.assess(reading)
            parts.inbox.simulate(on: &assessment)
            parts.publish(reading, assessment)
            response.respond(to: assessment, reading)
            onTurn?(reading, assessment)
            recorder?.record(RecordedTurn(reading, assessment, parts))

            let ended = time.elapsed()
            // Smoothed, with a cap that ignores turns in which the thread was preempted.
            turnCost += (min(ended - began, .milliseconds(1)) - turnCost) / 8
            let pace = Pace.interval(
                after: assessment, reading, holds: response.canFreeMemory, rings: source.rings, turnCost: turnCost,
                thresholds: policy.thresholds)
            // A level falls only at a reading, so read at the earliest time at which the level may fall. `min` in
            // pairs: `min` of four arguments allocates an array, and the loop allocates nothing.
            let soonest = min(pace, assessment.level > .normal ? recovery : pace)
            let wait = min(
                soonest,
                min(response.nextReadingWithin, parts.timeUntilAttention(at: ended, budget: policy.handlerBudget)))
            parts.comeBy(next: wait)
            endFirst(&isFirst)
            source.wait(atMost: wait)
        }
    }

    /// Releases the callers that wait for the first turn, once.
    private func endFirst(_ isFirst: inout Bool) {
        if isFirst { parts.firstTurn.end() }
        isFirst = false
    }
}

/// The end of the loop's first turn, and the callbacks that wait for that end.
final class FirstTurn: Sendable {
    /// Waiting callbacks, in order; `nil` once the turn is over.
    private let waiting = Mutex<[@Sendable () -> Void]?>([])

    /// Calls `body` when the first turn is over. Calls `body` immediately if the turn is over already.
    func whenOver(_ body: @escaping @Sendable () -> Void) {
        let isOver = waiting.withLock { waiting in
            waiting?.append(body)
            return waiting == nil
        }
        if isOver { body() }
    }

    /// Ends the wait: the first turn is over, or there will be none.
    func end() {
        let bodies = waiting.withLock { exchange(&$0, nil) }
        for body in bodies ?? [] { body() }
    }
}

/// The loop: look, judge, decide, act, wait. It runs on a thread of its own and owns its state as locals.
///
/// Nothing it calls can block it: releases run on the purging worker, observers on the delivery worker, handlers of
/// background tasks on threads of their own. It looks after all of them.
struct PressureLoop {
    let source: any PressureSource
    let policy: PressurePolicy
    let time: Timekeeper
    let parts: ManagerParts
    /// Whether it looks and acts at all.
    let isEnabled: Bool
    /// Sees every turn; for `watch`, `record` and benchmarks.
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
        let recovery = max(Pace.shortest, policy.thresholds.recoveryHold / 2)
        var isFirst = true
        defer { comeBy(next: nil) }
        // What was known is not true for long.
        defer { parts.room.publish(nil) }
        let environment = parts.lifecycle.environment
        defer { environment.limit.ended() }
        while !parts.inbox.isStopped {
            comeBy(next: Pace.longest)
            let began = time.elapsed()
            let mark = parts.meter.heldBytes, volatileMark = parts.volatileMeter.heldBytes
            guard var reading = try? source.read(at: began) else {
                // Nothing can be read just now: the source re-resolves its files and says why in its capabilities.
                endFirst(&isFirst)
                source.wait(atMost: Pace.longest)
                continue
            }
            (reading.charged, reading.volatile) = (mark, volatileMark)
            environment.limit.noticed(reading.limit, post: environment.post)
            var assessment = assessor.assess(reading)
            parts.inbox.simulate(on: &assessment)
            parts.publish(reading, assessment)
            response.respond(to: assessment, reading)
            onTurn?(reading, assessment)

            let ended = time.elapsed()
            // Smoothed, and blind to turns in which the thread lost its processor.
            turnCost += (min(ended - began, .milliseconds(1)) - turnCost) / 8
            let pace = Pace.interval(
                after: assessment, reading, holds: response.holdsAnything, rings: source.rings, turnCost: turnCost,
                thresholds: policy.thresholds)
            // A level falls when it is looked at, so it is looked at by the time that it may.
            // In pairs: `min` of four makes an array first, and nothing is allocated here.
            let soonest = min(pace, assessment.level > .normal ? recovery : pace)
            let wait = min(soonest, min(response.lookWithin, parts.timeUntilAttention(at: ended, budget: policy.handlerBudget)))
            comeBy(next: wait)
            endFirst(&isFirst)
            source.wait(atMost: wait)
        }
    }

    /// Lets those go who wait for a first look, once.
    private func endFirst(_ isFirst: inout Bool) {
        if isFirst { parts.firstTurn.end() }
        isFirst = false
    }

    /// The loop's part of the heartbeat.
    private func comeBy(next: Duration?) {
        guard time.onStep == nil, let gap = parts.heartbeat.beat(.loop, next: next) else { return }
        parts.alarms.noticed(gap)
    }
}

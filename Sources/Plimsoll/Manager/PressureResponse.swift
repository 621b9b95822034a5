import Synchronization

/// Carries out the response to an assessment: the only component with side effects.
struct PressureResponse {
    private let policy: PressurePolicy
    private let parts: ManagerParts
    private let source: any PressureSource
    private let time: Timekeeper

    private var climb: LadderClimb
    private var announcer: Announcer
    private var governor = PurgeGovernor()
    private var ramp = RefillRamp()
    private var volatile: VolatileResponse
    private var isRestricted = false
    private var isQuiescing = false
    /// True if a rung of a simulation has paused the work. That work goes on when the simulation ends.
    private var isRehearsing = false
    /// True if actions are only decided and reported. The same for all of a turn.
    private var isDryRun: Bool
    /// True after a refusal to end the process in this episode: refusals are reported once an episode.
    private var hasRefusedToEnd = false
    private var cancelling = RequestCancelling()

    static let leastAsked = ByteCount.mebibytes(1)
    /// Time of critical readings during which small purgeables that are expensive to rebuild are spared.
    static let sparing = Duration.seconds(1)

    /// True if purgeables without a meter may hold memory. Assumed until a purge releases nothing from them.
    private var mayHoldElsewhere: Bool

    /// True if the ladder may cancel a request. Requests may hold memory when no purgeable does.
    private let cancelsRequests: Bool

    /// True if an action could free memory, so that the next reading is urgent.
    var canFreeMemory: Bool { cancelsRequests || holdsAnything }

    /// True if a purge could release memory, as far as is known without asking.
    var holdsAnything: Bool { mayHoldElsewhere || (parts.meter.heldBytes > .zero && parts.purgeables.hasReleasable) }

    init(policy: PressurePolicy, parts: ManagerParts, source: any PressureSource, time: Timekeeper) {
        self.policy = policy
        self.parts = parts
        self.source = source
        self.time = time
        climb = LadderClimb(policy.ladder)
        announcer = Announcer(rest: policy.thresholds.announcementRest)
        cancelsRequests = policy.ladder != policy.ladder.cancellingNoRequest
        mayHoldElsewhere = parts.purgeables.hasUnmetered
        volatile = VolatileResponse(parts: parts)
        isDryRun = parts.isDryRun.load(ordering: .relaxed)
    }

    /// Upper bound of the time to the next reading, independent of the pace.
    var nextReadingWithin: Duration { volatile.nextReadingWithin }

    mutating func respond(to assessment: PressureAssessment, _ reading: PressureReading) {
        let wasDryRun = exchange(&isDryRun, parts.isDryRun.load(ordering: .relaxed))
        // Actions that were only decided are not done, and say nothing of the effect of a release.
        if wasDryRun, !isDryRun {
            climb = LadderClimb(policy.ladder)
            governor.reset()
        }
        recordFinishedRelease(assessment, reading)
        let share = parts.divider.allowance(held: reading.charged, room: assessment.room)
        // Within the share of a supervisor, memory that other processes have left is not kept for bursts.
        let allowance = ramp.allowance(
            room: share == nil ? assessment.room : assessment.roomToLine, level: assessment.present, at: assessment.at)
        parts.meter.allow(isDryRun ? .max : min(allowance, share ?? .max), since: reading.charged)
        parts.purger.publish(isNeedGone: assessment.observed == .normal && assessment.room ?? .max > .zero)

        if isRehearsing, !assessment.evidence.contains(.simulated) { (isQuiescing, isRehearsing) = (false, false) }
        for action in climb.climb(assessment) { perform(action, assessment, reading) }
        volatile.respond(
            to: assessment, reading, ramp: ramp, isPurging: governor.isRunning, blank: report(.makeRoom, assessment))
        if policy.division == .byWorth, !isDryRun, parts.requestRounds(at: assessment.at) {
            parts.purgeWorker.request()
        }
        // Shed load by the present level: once memory is available again, refusing requests has no use.
        if assessment.present == .normal { isQuiescing = false }
        if parts.admission.post(isDryRun ? .normal : assessment.present, isQuiescing: isQuiescing && !isDryRun) {
            parts.deliveryWorker.request()
        }
        announce(assessment)
        if assessment.level == .normal { calmDown(assessment) }
        if assessment.present == .normal, assessment.room ?? .max > .zero { lift(assessment) }
        goAroundTheStuck(assessment)
    }

    // MARK: One action

    private mutating func perform(
        _ action: PressureAction, _ assessment: PressureAssessment, _ reading: PressureReading
    ) {
        switch action {
        case .warn: announce(assessment)
        case .release: release(action, assessment, reading)
        case .cancelLargestRequest(let least): cancelLargestRequest(action, above: least, assessment)
        case .quiesce: quiesce(action, assessment)
        case .expireBackgroundTasks(let grace): expire(action, grace, assessment)
        case .suspend: suspend(action, assessment)
        case .terminate(let grace): terminate(action, grace, assessment)
        case .makeRoom, .noticeDrops: break  // On no ladder: `VolatileResponse` performs these at any level.
        }
    }

    private mutating func announce(_ assessment: PressureAssessment) {
        let withheld = announcer.withheld
        guard let event = announcer.event(for: assessment) else {
            if let now = announcer.withheld, now != withheld { parts.journal.tally.rested() }
            return
        }
        parts.observers.post(event)
        parts.deliveryWorker.request()
    }

    private mutating func release(
        _ action: PressureAction, _ assessment: PressureAssessment, _ reading: PressureReading
    ) {
        let shortfall = bytesToRelease(assessment)
        guard shortfall > .zero,
            governor.start(at: assessment.at, level: assessment.level, available: reading.available)
        else { return }
        var report = report(action, assessment)
        // A smaller pass costs as much, and its effect could not be told from noise.
        report.asked = max(shortfall, Self.leastAsked)
        if isDryRun {
            report.outcome = .dryRun
            parts.report(report)
            governor.finished(report, at: assessment.at, available: reading.available)
            return
        }
        isRestricted = true
        let askedVolatile = VolatileResponse.bytesToRelease(assessment, reading, asked: report.asked)
        // Spare purgeables that would yield next to nothing, until nothing else has helped for a while.
        let hasLasted = climb.criticalSince.map { assessment.at - $0 >= Self.sparing } ?? false
        parts.purger.post(
            .init(
                report: report, askedVolatile: askedVolatile, includesPrecious: assessment.observed == .critical,
                sparesSmall: !hasLasted))
        parts.purgeWorker.request()
    }

    /// Returns the shortfall. An announcement or a simulation has no byte count; the result is then a share of the
    /// held bytes.
    private func bytesToRelease(_ assessment: PressureAssessment) -> ByteCount {
        guard assessment.shortfall == .zero, !assessment.evidence.isDisjoint(with: .ofLevel) else {
            return assessment.shortfall
        }
        return max(Self.leastAsked, parts.meter.heldBytes * assessment.unknownShare)
    }

    private mutating func cancelLargestRequest(
        _ action: PressureAction, above least: ByteCount, _ assessment: PressureAssessment
    ) {
        guard cancelling.isDue(at: assessment.at) else { return }
        guard let request = parts.requests.largest(above: least) else {
            if cancelling.refuses(isMetered: BudgetRegistry.isMetered) {
                refuse(action, assessment, "the memory of requests is not counted (Jemalloc.meterRequests)")
            }
            return
        }
        var report = report(action, assessment)
        (report.cancelledRequest, report.cancelledBytes) = (request.name, request.held)
        if isDryRun { report.outcome = .dryRun } else if !request.endForPressure() { return }
        cancelling.began(request, at: assessment.at)
        parts.report(report)
    }

    private mutating func quiesce(_ action: PressureAction, _ assessment: PressureAssessment) {
        guard parts.joined.all.contains(where: \.canQuiesce) else {
            return refuse(action, assessment, "no pausable component is registered")
        }
        var report = report(action, assessment)
        if isDryRun {
            report.outcome = .dryRun
        } else if !isQuiescing {
            (isQuiescing, isRehearsing) = (true, report.isSimulated)
        }
        parts.report(report)
    }

    private func expire(_ action: PressureAction, _ grace: Duration, _ assessment: PressureAssessment) {
        var report = report(action, assessment)
        if isDryRun {
            report.outcome = .dryRun
        } else {
            let blank = report
            parts.sceneTasks.expireAll(.pressure, within: grace) { [parts] names in
                guard !names.isEmpty else { return }
                var overrun = blank
                overrun.outcome = .overran(names)
                parts.report(overrun)
            }
        }
        parts.report(report)
    }

    private func suspend(_ action: PressureAction, _ assessment: PressureAssessment) {
        if assessment.evidence.contains(.simulated) {
            return refuse(action, assessment, "a simulation does not suspend the process")
        }
        var report = report(action, assessment)
        if isDryRun {
            report.outcome = .dryRun
        } else if let refusal = parts.suspension.ask() {
            report.outcome = .refused(refusal)
        }
        parts.report(report)
    }

    private func refuse(_ action: PressureAction, _ assessment: PressureAssessment, _ reason: String) {
        var report = report(action, assessment)
        report.outcome = .refused(reason)
        parts.report(report)
    }

    private mutating func terminate(_ action: PressureAction, _ grace: Duration, _ assessment: PressureAssessment) {
        func once(_ outcome: ActionReport.Outcome) {
            guard !hasRefusedToEnd else { return }
            hasRefusedToEnd = true
            var report = report(action, assessment)
            report.outcome = outcome
            parts.report(report)
        }
        if assessment.evidence.contains(.simulated) {
            return once(.refused("a simulation does not terminate the process"))
        }
        if isDryRun { return once(.dryRun) }
        // While purging helps, there is a better option than ending the process.
        guard !governor.isRunning, governor.lastWasUseless || !holdsAnything else { return }
        // Do not act on a stale reading: read again.
        guard let again = try? source.read(at: time.elapsed()), let limit = again.limit,
            let available = again.available,
            available < policy.thresholds.criticalMargin.below(limit)
        else { return }
        let since = assessment.at - (climb.criticalSince ?? assessment.at)
        // Once: in tests, `exit` returns.
        parts.inbox.stop()
        Ending(parts: parts, time: time).end(within: grace, after: since, again)
    }

    // MARK: Following up

    private mutating func recordFinishedRelease(_ assessment: PressureAssessment, _ reading: PressureReading) {
        if let report = parts.purger.takeFinished() {
            governor.finished(report, at: assessment.at, available: reading.available)
            mayHoldElsewhere = parts.purgeables.hasUnmetered && report.released > .zero
        }
    }

    private mutating func calmDown(_ assessment: PressureAssessment) {
        hasRefusedToEnd = false
        cancelling.reset()
        governor.reset()
        mayHoldElsewhere = parts.purgeables.hasUnmetered
    }

    /// Lets purgeables without a meter grow again.
    private mutating func lift(_ assessment: PressureAssessment) {
        if parts.purger.takeLeftRestriction() { isRestricted = true }
        guard isRestricted, !governor.isRunning, ramp.isFull else { return }
        isRestricted = false
        parts.purger.post(.init(report: report(.release, assessment), includesPrecious: false, lifts: true))
        parts.purgeWorker.request()
    }

    private mutating func goAroundTheStuck(_ assessment: PressureAssessment) {
        if let name = parts.purgeWorker.replaceIfStuck(at: assessment.at, budget: policy.handlerBudget) {
            governor.abandoned()
            parts.keeper.abandoned()
            // The run given up may have been lifting restrictions.
            isRestricted = true
            overran(.release, name, assessment)
        }
        if let name = parts.deliveryWorker.replaceIfStuck(at: assessment.at, budget: policy.handlerBudget) {
            overran(.warn, name, assessment)
        }
    }

    private func overran(_ action: PressureAction, _ name: String, _ assessment: PressureAssessment) {
        var report = report(action, assessment)
        report.took = policy.handlerBudget
        report.outcome = .overran([name])
        parts.report(report)
    }

    private func report(_ action: PressureAction, _ assessment: PressureAssessment) -> ActionReport {
        var report = ActionReport(
            eventID: announcer.lastID, action: action, level: assessment.level, evidence: assessment.evidence,
            began: assessment.at)
        report.isDryRun = isDryRun
        return report
    }
}

import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization

/// The main loop: read events, check, decide, act, wait. One thread owns all state.
///
/// Start reading at `turn`.
final class SupervisorLoop {
    let supervisor: Supervisor
    private(set) var options: Supervisor.Options
    /// The directory for sockets and notes to the next supervisor. A dry run has a separate one.
    let directory: String
    let journal: Journal
    let actionWorker: ActionWorker
    /// A worker for slow reads.
    let readWorker: ActionWorker
    let thawWatchdog: Guard
    /// The socket of units that the supervisor did not start. Each other unit has a separate socket.
    var notices: NotifySocket!
    var channel: ChannelServer!
    let senders = SenderCache()
    /// The rate limit of messages at `notices`, for all units without a socket of their own.
    var commonAllowance = Allowance(rate: 1000, burst: 512, at: .zero)
    /// Sockets that are paused, with the time until which they are not read.
    var resting: [EventQueue.Token: (file: Int32, until: Duration)] = [:]
    var complaints = ComplaintPacer()
    let fleetWatch = FleetWatch()
    var engine: SupervisorEngine
    var runs: [UInt64: UnitRun] = [:]
    var byName: [String: UnitRun] = [:]
    var byProcess: [Int32: UnitRun] = [:]
    var lastID: UInt64 = 0
    var isStopping = false
    var stopBy: Duration?
    /// Time that each unit gets to end, if asked during the stop.
    var stopTurn = Duration.zero
    /// Units that start as soon as the former units of the same names are gone.
    var arrivals: [ServiceUnit] = []
    /// Units whose setup failed for now, by name.
    var postponed: [String: PostponedUnit] = [:]
    /// True once the units remaining after `stopBy` were killed.
    private var hasKilledAll = false
    /// Time of the next attempt to restart the guard.
    var watchdogDue: Duration?
    /// The guard that the queue watches.
    var watchedGuard: (pid: Int32, file: Int32) = (0, -1)
    /// The machine's clock, so that records can be compared with those of other processes.
    let time = Timekeeper.machine
    var now = Duration.zero
    /// True if units were set up recently and the memory for that is still mapped.
    var isFresh = true

    /// Encodes a file and its unit: the low bits give the kind of file, the others the unit.
    enum Token {
        static let notices: EventQueue.Token = 0, channel: EventQueue.Token = 1, thawWatchdog: EventQueue.Token = 2
        static let child: EventQueue.Token = 0, events: EventQueue.Token = 1, pressure: EventQueue.Token = 2,
            messages: EventQueue.Token = 3
        static func of(_ id: UInt64, _ part: EventQueue.Token) -> EventQueue.Token { id << 2 | part }
        /// Returns true for a socket that any process may write to without limit.
        static func isMessageSocket(_ token: EventQueue.Token) -> Bool {
            token == notices || token == channel
                || token > thawWatchdog && (token & 3 == messages || token & 3 == pressure)
        }
    }

    init(_ supervisor: Supervisor) throws {
        self.supervisor = supervisor
        var options = supervisor.options
        // No other supervisor takes over the units of a dry run.
        if options.policy.isDryRun { options.leavesUnits = false }
        self.options = options
        // First, while there is little memory to share.
        thawWatchdog = try Guard(
            keeping: supervisor.claim.withLock { $0?.descriptors ?? [] }, patience: options.guardPatience)
        guard ForeignCloser.shared.prepare() else {
            throw SupervisorError(
                "cannot start a thread; check the limit of processes (pids.max, RLIMIT_NPROC)")
        }
        directory = options.policy.isDryRun ? try Self.scratchDirectory() : options.directory
        journal = try Journal(options.audit) { supervisor.report($0) }
        (actionWorker, readWorker) = (try ActionWorker(), try ActionWorker())
        engine = SupervisorEngine(options.policy)
        notices = try NotifySocket(directory: directory, unit: nil) { [unowned self] in
            unit(of: $0.process, user: $0.user)?.unit.name
        }
        channel = try ChannelServer(directory: directory) { [unowned self] in linkUnit($0, $1) }
        watchFiles()
    }

    deinit {
        actionWorker.stop()
        readWorker.stop()
        if isDryRun { removeScratchDirectory() }
    }

    private func watchFiles() {
        supervisor.queue.watch(notices.file, for: .readable, Token.notices)
        supervisor.queue.watch(channel.file, for: .readable, Token.channel)
        watchGuard()
    }

    func run(_ units: [ServiceUnit]) throws {
        defer { end() }
        now = time.elapsed()
        // A dry run needs no protection.
        if !isDryRun {
            let protection = SelfProtection(own: supervisor.root.own)
            supervisor.protection.withLock { $0 = protection.outcomes }
        }
        if !isDryRun { liftLeftovers() }
        take(units)
        endLeftovers(beside: units)
        // Evaluate now, without waiting for an event.
        next = now
        fleetWatch.start(
            supervisor.source, thresholds: options.thresholds, time: time,
            onChange: { [queue = supervisor.queue] in queue.ring() },
            onEnd: { [supervisor] in supervisor.report("lost the readings of memory pressure: \($0)") })
        while !(isStopping && (runs.isEmpty || options.leavesUnits)) { turn() }
    }

    private func turn() {
        // Before the wait: only the end of a watched guard ends the wait.
        watchGuard()
        let wait = wait()
        if isFresh, wait.map({ $0 > .seconds(1) }) ?? true, fleetWatch.current.level == .normal { trimAfterStart() }
        var tokens: [EventQueue.Token] = []
        let began = time.elapsed()
        let isRung = supervisor.queue.wait(atMost: wait) { tokens.append($0) }
        // Relaxed: a statistic.
        supervisor.turns.add(1, ordering: .relaxed)
        now = time.elapsed()
        if let wait { noteWait(now - began, asked: wait) }
        for token in tokens { handle(token) }
        if let trouble = supervisor.queue.takeTrouble() { supervisor.report(trouble) }
        takeRequests()
        keepTime()
        if inheritsChildren { Orphans.reap() }
        for run in runs.values { followState(run) }
        // Messages alone, in any number, cause at most one evaluation per tick.
        let hasOnlyMessages =
            !isRung && !tokens.isEmpty && tokens.allSatisfy(Token.isMessageSocket) && next.map { $0 > now } ?? true
        if hasOnlyMessages, !isStopping, now - lastEvaluation < Self.tick {
            next = min(next ?? .seconds(Int64.max / 4), lastEvaluation + Self.tick)
            return
        }
        lastEvaluation = now
        // Relaxed: a statistic.
        supervisor.evaluations.add(1, ordering: .relaxed)
        let fleet = readFleet()
        // An ending supervisor needs no more decisions. Units left running are the next supervisor's to decide on.
        guard !isStopping else { return next = nil }
        hasLearned = false
        shrinkStores(fleet.level)
        for decision in engine.decide(fleet) { carryOut(decision, fleet) }
        next = engine.nextEvaluation(after: fleet).map { now + $0 }
        // The outcome may need another decision: a failed freeze must be rolled back.
        if hasLearned { next = min(next ?? .seconds(Int64.max / 4), now + SupervisorEngine.leastWait) }
    }

    /// Extends the time limits of all units by a wait that took far longer than asked. The whole machine or container
    /// was paused meanwhile, and no unit could work (K35).
    func noteWait(_ took: Duration, asked: Duration) {
        guard took - asked > Self.leastPause else { return }
        for run in runs.values { run.excuse(took) }
        stopBy = stopBy.map { $0 + took }
    }

    /// The least delay that counts as a pause. On a busy machine the supervisor may be late by less.
    private static let leastPause = Duration.seconds(2)
    /// True if this process must wait for orphans of the units.
    private let inheritsChildren = Orphans.areOurs
    /// True if outcomes arrived since the last evaluation.
    var hasLearned = false
    private var lastEvaluation = Duration.zero - .seconds(1)
    private static let tick = Duration.milliseconds(20)
    /// Time of the next evaluation without an event.
    private var next: Duration?

    /// Returns the time until something is due; `nil` if nothing is.
    func wait() -> Duration? {
        // The turn may have taken long, as for the start of many units.
        now = time.elapsed()
        var due = [next, channel.nextTurn, stopBy, watchdogDue, complaints.nextDue, arrivals.isEmpty ? nil : now]
            .compactMap { $0 }
        for rest in resting.values { due.append(rest.until) }
        for later in postponed.values { due.append(later.due) }
        // No event signals the end of an orphan.
        if inheritsChildren { due.append(now + .seconds(2)) }
        for run in runs.values {
            if let killAt = run.killAt { due.append(killAt) }
            if let noteDue = run.noteDue { due.append(noteDue) }
            if run.state == .starting, let startBy = run.startBy { due.append(startBy) }
            // A unit whose dependencies don't run waits for these, not for the clock.
            if let startAt = run.startAt, !isStopping, canStart(run) { due.append(startAt) }
            if let pause = pollPause(run) { due.append(now + pause) }
            if let watchdog = run.watchdog, run.state == .running { due.append(run.lastAlive + watchdog) }
            if run.isBeforeFreeze, let check = run.locks.nextDue { due.append(check) }
        }
        return due.min().map { max(.zero, $0 - now) }
    }

    /// Handles everything that is due by time.
    private func keepTime() {
        let arrived = arrivals
        arrivals = []
        for unit in arrived { add(unit) }
        tryPostponed()
        wakeRested()
        reportWithheld()
        // Read connections again after a pause.
        if let next = channel.nextTurn, now >= next { handle(Token.channel) }
        if let watchdogDue, now >= watchdogDue { replaceThawWatchdog() }
        for run in runs.values {
            if pollPause(run) != nil { groupChanged(run) }
            if let killAt = run.killAt, now >= killAt { kill(run) }
            if let noteDue = run.noteDue, now >= noteDue { note(run) }
            // The message may be unread at a paused socket.
            if isOverdue(run) { receivePending(run) }
            if run.state == .starting, let startBy = run.startBy, now >= startBy {
                run.startBy = nil
                if run.mayBeUp {
                    cameUp(run)
                } else {
                    report(run.unit, "killed: it did not report in time that it had started (READY=1)")
                    kill(run)
                }
            }
            if let watchdog = run.watchdog, run.state == .running, now >= run.lastAlive + watchdog {
                run.watchdog = nil
                report(run.unit, "killed: it did not report for \(watchdog) that it was alive (WATCHDOG=1)")
                kill(run)
            }
        }
        if let stopBy, now >= stopBy {
            if hasKilledAll { return abandon() }
            hasKilledAll = true
            // Even killed processes take a while to end: the kernel frees their memory first.
            self.stopBy = now + .seconds(10)
            for run in runs.values { kill(run) }
        }
        startWaiting()
    }

    private func isOverdue(_ run: UnitRun) -> Bool {
        run.state == .starting && run.startBy.map { now >= $0 } ?? false
            || run.state == .running && run.watchdog.map { now >= run.lastAlive + $0 } ?? false
    }

    private func takeRequests() {
        let requests = supervisor.requests.withLock { exchange(&$0, []) }
        for request in requests {
            switch request {
            case .stop: stop()
            case .units(let units, let policy):
                if let policy { use(policy) }
                if !isStopping { take(units) }
                isFresh = true
            case .outcome(let id, let number, let failure):
                // The outcome of a replaced operation was reported before.
                if let run = runs[id], run.underWay?.number == number { completeOperation(of: run, failure: failure) }
            case .locks(let id, let since, let asked, let areHeld):
                guard let run = runs[id] else { continue }
                run.locks.answer(areHeld, asked: asked, counts: run.isBeforeFreeze && run.since == since)
            }
        }
    }

    private func use(_ policy: SupervisorPolicy) {
        let isDryRun = isDryRun
        options.policy = policy
        // A dry run has a directory and groups of its own.
        options.policy.isDryRun = isDryRun
        engine.policy = options.policy
    }

    /// Returns the interval for polling whether a group is frozen, empty or removed. Returns `nil` if the kernel sends
    /// events, or if nothing depends on the state.
    private func pollPause(_ run: UnitRun) -> Duration? {
        // No event tells that the owner made the group again, or on version 1 that a process entered the group.
        guard run.isAlive else { return run.unit.origin.isGroup ? .seconds(1) : nil }
        guard run.group.eventsFile < 0 || run.isGroupGone else { return nil }
        if run.state == .suspending || run.state == .ending { return .milliseconds(20) }
        return run.child == nil ? .seconds(1) : nil
    }

    private func end() {
        fleetWatch.stop()
        actionWorker.stop()
        readWorker.stop()
        for run in runs.values {
            // No unit is left frozen or throttled.
            completeOperation(of: run, failure: "the supervisor stopped")
            setFree(run)
            unwatch(run)
        }
        reportWithheld(isOver: true)
        // A disk that doesn't answer must not prevent the end of the supervisor.
        journal.finish(within: .seconds(2))
    }

    func newID() -> UInt64 {
        lastID += 1
        return lastID
    }
}

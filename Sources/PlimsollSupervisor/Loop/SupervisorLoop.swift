import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization

/// Hear, look, decide, act, wait. One thread owns all of it.
///
/// Start reading at `turn`.
final class SupervisorLoop {
    let supervisor: Supervisor
    let options: Supervisor.Options
    /// For its sockets, and for what the next one has to know. A dry run has one of its own.
    let directory: String
    let journal: Journal
    let hands: Hands
    /// For what takes its time to read.
    let lookout: Hands
    let warden: Guard
    /// For units that the supervisor did not start; each of the others has one of its own.
    var notices: NotifySocket!
    var channel: ChannelServer!
    let speakers = SpeakerCache()
    /// Words at `notices`, of all units that have no socket of their own.
    var commonAllowance = Allowance(rate: 1000, burst: 512, at: .zero)
    /// Sockets that are not read for a while, and until when.
    var resting: [EventQueue.Token: (file: Int32, until: Duration)] = [:]
    var complaints = ComplaintPacer()
    let eyes = FleetWatch()
    var engine: SupervisorEngine
    var runs: [UInt64: UnitRun] = [:]
    var byName: [String: UnitRun] = [:]
    var byProcess: [Int32: UnitRun] = [:]
    var lastID: UInt64 = 0
    var isStopping = false
    var stopBy: Duration?
    /// What each has to end that is asked meanwhile.
    var stopTurn = Duration.zero
    /// Units that come as soon as the former ones of their names are gone.
    var arrivals: [ServiceUnit] = []
    /// Units that could not be taken up, by name.
    var postponed: [String: PostponedUnit] = [:]
    /// What is left after `stopBy` was killed.
    private var hasKilledAll = false
    /// When a guard is to be made again.
    var wardenDue: Duration?
    /// The guard that the queue tells of.
    var watchedWarden: (pid: Int32, file: Int32) = (0, -1)
    /// So that records can be put beside others'.
    let time = Timekeeper.machine
    var now = Duration.zero
    /// Units were taken up, and what that took is still mapped in.
    var isFresh = true

    /// Which file of which unit: the low bits say what, the others whose.
    enum Token {
        static let notices: EventQueue.Token = 0, channel: EventQueue.Token = 1, warden: EventQueue.Token = 2
        static let child: EventQueue.Token = 0, events: EventQueue.Token = 1, pressure: EventQueue.Token = 2,
            speech: EventQueue.Token = 3
        static func of(_ id: UInt64, _ part: EventQueue.Token) -> EventQueue.Token { id << 2 | part }
        /// Of a socket that any process may write to as often as it likes.
        static func isSpeech(_ token: EventQueue.Token) -> Bool {
            token == notices || token == channel || token > warden && (token & 3 == speech || token & 3 == pressure)
        }
    }

    init(_ supervisor: Supervisor) throws {
        self.supervisor = supervisor
        var options = supervisor.options
        // Nobody takes over what a dry run has started.
        if options.policy.isDryRun { options.leavesUnits = false }
        self.options = options
        // First, as long as there is little to share.
        warden = try Guard(keeping: supervisor.claim.withLock { $0?.descriptors ?? [] })
        guard ForeignCloser.shared.prepare() else {
            throw SupervisorError(
                "no thread could be started; is the limit of processes reached (pids.max, RLIMIT_NPROC)?")
        }
        directory = options.policy.isDryRun ? try Self.scratchDirectory() : options.directory
        journal = try Journal(options.audit) { supervisor.tell($0) }
        (hands, lookout) = (try Hands(), try Hands())
        engine = SupervisorEngine(options.policy)
        notices = try NotifySocket(directory: directory, unit: nil) { [unowned self] in
            unit(of: $0.process, user: $0.user)?.unit.name
        }
        channel = try ChannelServer(directory: directory) { [unowned self] in linkUnit($0, $1) }
        watchFiles()
    }

    deinit {
        hands.stop()
        lookout.stop()
        if isDryRun { removeScratchDirectory() }
    }

    private func watchFiles() {
        supervisor.queue.watch(notices.file, for: .readable, Token.notices)
        supervisor.queue.watch(channel.file, for: .readable, Token.channel)
        watchWarden()
    }

    func run(_ units: [ServiceUnit]) throws {
        defer { end() }
        now = time.elapsed()
        // A dry run is not missed.
        if !isDryRun {
            let protection = SelfProtection(own: supervisor.root.own)
            supervisor.protection.withLock { $0 = protection.outcomes }
        }
        if !isDryRun { liftLeftovers() }
        take(units)
        endLeftovers(beside: units)
        // Not only once something happens.
        next = now
        eyes.start(
            supervisor.source, thresholds: options.thresholds, time: time,
            onChange: { [queue = supervisor.queue] in queue.ring() },
            onEnd: { [supervisor] in supervisor.tell("how short memory is can't be seen any more: \($0)") })
        while !(isStopping && (runs.isEmpty || options.leavesUnits)) { turn() }
    }

    private func turn() {
        let wait = wait()
        if isFresh, wait.map({ $0 > .seconds(1) }) ?? true, eyes.current.level == .normal { settleDown() }
        var heard: [EventQueue.Token] = []
        let isRung = supervisor.queue.wait(atMost: wait) { heard.append($0) }
        // Relaxed: a number to look at.
        supervisor.turns.add(1, ordering: .relaxed)
        now = time.elapsed()
        for token in heard { hear(token) }
        watchWarden()
        if let trouble = supervisor.queue.takeTrouble() { supervisor.tell(trouble) }
        takeRequests()
        keepTime()
        if inheritsChildren { Orphans.reap() }
        for run in runs.values { followState(run) }
        // Words alone, however many come, have all units looked at and decided on once a tick.
        let isSpeech = !isRung && !heard.isEmpty && heard.allSatisfy(Token.isSpeech) && next.map { $0 > now } ?? true
        if isSpeech, !isStopping, now - lastLook < Self.tick {
            next = min(next ?? .seconds(Int64.max / 4), lastLook + Self.tick)
            return
        }
        lastLook = now
        // Relaxed: a number to look at.
        supervisor.looks.add(1, ordering: .relaxed)
        let fleet = look()
        // Whoever is ending needs no more decisions, and what is left to the next supervisor is that one's to decide on.
        guard !isStopping else { return next = nil }
        hasLearned = false
        shrinkStores(fleet.level)
        for decision in engine.decide(fleet) { carryOut(decision, fleet) }
        next = engine.nextLook(after: fleet).map { now + $0 }
        // What came of it may ask for more, as a freeze that failed does to be taken back.
        if hasLearned { next = min(next ?? .seconds(Int64.max / 4), now + SupervisorEngine.leastWait) }
    }

    /// Whether it waits for processes that units have left behind.
    private let inheritsChildren = Orphans.areOurs
    /// Outcomes were told since the last look.
    var hasLearned = false
    private var lastLook = Duration.zero - .seconds(1)
    private static let tick = Duration.milliseconds(20)
    /// When something is due without anybody saying so.
    private var next: Duration?

    private func wait() -> Duration? {
        var due = [next, channel.nextTurn, stopBy, wardenDue, complaints.nextDue, arrivals.isEmpty ? nil : now]
            .compactMap { $0 }
        for rest in resting.values { due.append(rest.until) }
        for later in postponed.values { due.append(later.due) }
        // Nobody says when an orphan ends.
        if inheritsChildren { due.append(now + .seconds(2)) }
        for run in runs.values {
            if let killAt = run.killAt { due.append(killAt) }
            if let noteDue = run.noteDue { due.append(noteDue) }
            if run.state == .starting, let startBy = run.startBy { due.append(startBy) }
            // One whose dependencies don't run waits for them, not for the clock.
            if let startAt = run.startAt, !isStopping, canStart(run) { due.append(startAt) }
            if let pause = pollPause(run) { due.append(now + pause) }
            if let watchdog = run.watchdog, run.state == .running { due.append(run.lastAlive + watchdog) }
        }
        return due.min().map { max(.zero, $0 - now) }
    }

    /// What is due by the clock.
    private func keepTime() {
        let arrived = arrivals
        arrivals = []
        for unit in arrived { add(unit) }
        tryPostponed()
        wakeRested()
        tellWithheld()
        // Connections that had said too much are read again.
        if let next = channel.nextTurn, now >= next { hear(Token.channel) }
        if let wardenDue, now >= wardenDue { replaceWarden() }
        for run in runs.values {
            if pollPause(run) != nil { groupChanged(run) }
            if let killAt = run.killAt, now >= killAt { kill(run) }
            if let noteDue = run.noteDue, now >= noteDue { note(run) }
            // Its word may lie unread at a socket that rests.
            if isOverdue(run) { hearOut(run) }
            if run.state == .starting, let startBy = run.startBy, now >= startBy {
                run.startBy = nil
                report(run.unit, "it is killed, as it has not said in time that it has started (READY=1)")
                kill(run)
            }
            if let watchdog = run.watchdog, run.state == .running, now >= run.lastAlive + watchdog {
                run.watchdog = nil
                report(run.unit, "it is killed, as it has not said for \(watchdog) that it is alive")
                kill(run)
            }
        }
        if let stopBy, now >= stopBy {
            if hasKilledAll { return abandon() }
            hasKilledAll = true
            // Even the killed take a while: their memory is given back first.
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
        let requests = supervisor.requests.withLock { requests in
            defer { requests = [] }
            return requests
        }
        for request in requests {
            switch request {
            case .stop: stop()
            case .units(let units):
                if !isStopping { take(units) }
                isFresh = true
            case .outcome(let id, let number, let failure):
                // Of one that was replaced it has been told already.
                if let run = runs[id], run.underWay?.number == number { settle(run, failure: failure) }
            case .locks(let id, let since, let asked, let areHeld):
                guard let run = runs[id] else { continue }
                run.locks.answer(areHeld, asked: asked, counts: run.state == .leaving && run.since == since)
            }
        }
    }

    /// How soon to look whether a group stands still or is empty, where the kernel doesn't tell; `nil` where it does, or nothing hangs on it.
    private func pollPause(_ run: UnitRun) -> Duration? {
        guard run.group.eventsFile < 0, run.isAlive else { return nil }
        if run.state == .suspending || run.state == .ending { return .milliseconds(20) }
        return run.child == nil ? .seconds(1) : nil
    }

    private func end() {
        eyes.stop()
        hands.stop()
        lookout.stop()
        for run in runs.values {
            // Nobody is left behind standing still, or slowed down.
            settle(run, failure: "the supervisor has stopped")
            setFree(run)
            unwatch(run)
        }
        tellWithheld(isOver: true)
        // A disk that does not answer keeps no supervisor from its end.
        journal.finish(within: .seconds(2))
    }

    func newID() -> UInt64 {
        lastID += 1
        return lastID
    }
}

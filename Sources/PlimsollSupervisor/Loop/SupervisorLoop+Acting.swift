import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization

// Carries out decisions.
extension SupervisorLoop {
    func carryOut(_ decision: Decision, _ fleet: Fleet) {
        write(AuditRecord(decision, level: fleet.level, shortfall: fleet.shortfall))
        guard !decision.isDryRun, !isDryRun else { return }
        guard let run = byName[decision.unit] else {
            return engine.learn(Outcome(decision, at: now, relief: .zero, failure: "the unit no longer exists"))
        }
        switch decision.action {
        case .warn, .release, .share: break
        // Each decision has one outcome, so the replaced action counts as failed.
        default:
            completeOperation(
                of: run,
                failure:
                    "replaced by another decision, because it was not done in time: \(decision.action.kind.rawValue)")
        }
        let before = run.charge
        do {
            guard run.isAlive || decision.action == .start else { throw SupervisorError("the unit has ended") }
            if try act(decision, on: run, newID()) { return complete(decision, run, before, failure: nil) }
            run.underWay = (lastID, decision, before)
        } catch {
            complete(decision, run, before, failure: "\(error)")
        }
    }

    /// - Returns: true if the action is already complete.
    private func act(_ decision: Decision, on run: UnitRun, _ number: UInt64) throws -> Bool {
        switch decision.action {
        case .warn(let level):
            (run.notified, run.notifiedAt) = (level, now)
            _ = run.pressure.announce(level)
            if let peer = run.peer { channel.send(.level(level), to: peer) }
        case .release(let bytes):
            if let peer = run.peer { channel.send(.release(bytes), to: peer) }
        case .share(let share):
            run.share = share
            if let peer = run.peer { channel.send(.share(share), to: peer) }
        case .background:
            run.enter(.leaving, at: now)
            checkLocks(of: run)
            run.suspensionRequestedAt = nil
            run.backgroundSince = run.backgroundSince ?? now
            if fleetWatch.current.level == .critical { contain(run, isEnding: false) }
            if let peer = run.peer { channel.send(.background(deadline: options.policy.leaveTime), to: peer) }
        case .suspend:
            // A frozen unit must be thawed even if this process ends for any reason (T32).
            guard thawWatchdog.isAlive else {
                throw SupervisorError("no guard runs that would resume the unit if the supervisor were killed")
            }
            run.enter(.suspending, at: now)
            // Update the guard: a unit stopped by signals has no group that lists the processes, and a rejected group
            // is not yet held.
            if run.group.suspension == .stop || !thawWatchdog.isHolding(run.group) { try thawWatchdog.watch(run.group) }
            try run.group.freeze()
            if run.group.suspension == .stop { try thawWatchdog.watch(run.group) }
            guard run.group.isFrozen else { return false }
            run.enter(.suspended, at: now)
        case .resume(let reason):
            try resume(run, reason)
            if reason == .keepAlive { run.wokenAt = decision.at }
        case .reclaim(let bytes):
            let id = run.id, group = run.group, supervisor = supervisor, thawWatchdog = thawWatchdog
            actionWorker.work {
                var failure: String?
                do { try group.reclaim(bytes, guardian: thawWatchdog) } catch { failure = "\(error)" }
                supervisor.ask(.outcome(id, number, failure: failure))
            }
            return false
        case .throttle(let on):
            if on { try throttle(run) } else { letLoose(run) }
        case .end(let ending):
            run.isEndedByUs = true
            run.lastEnded = now
            switch ending {
            case .kill, .killSuspended: kill(run)
            case .ask(let grace): askToEnd(run, grace)
            }
            return !run.isAlive
        case .start:
            start(run)
            if run.state == .stopped { throw SupervisorError("the unit could not be started") }
        }
        return true
    }

    private func resume(_ run: UnitRun, _ reason: UnitAction.ResumeReason) throws {
        try run.group.thaw()
        resumed(run, reason)
    }

    /// Records that the unit runs again, and tells the unit where it does not know.
    func resumed(_ run: UnitRun, _ reason: UnitAction.ResumeReason) {
        if reason != .ending { letGrow(run) }
        if run.state != .ending { run.goOn(at: now) }
        run.isSaved = false
        switch reason {
        case .keepAlive:
            run.lastWoken = now
            // A link tells only changes. A unit that is saved as before would not say so again, and could then only be
            // asked to end.
            if let peer = run.peer { channel.send(.checkpoint, to: peer) }
        case .room:
            // The unit reports anew when ready.
            run.isReady = false
            if let peer = run.peer { channel.send(.resume, to: peer) }
            if run.unit.role == .foreground { run.backgroundSince = nil }
        case .ending: break
        }
    }

    /// Asks the unit to end, and kills the unit later if still running.
    func askToEnd(_ run: UnitRun, _ grace: Duration) {
        guard run.isAlive, !run.isObserved else { return }
        run.isEndedByUs = true
        // A frozen unit works again from here on, so its word that nothing would be lost no longer holds.
        if run.state == .suspending || run.state == .suspended { run.isSaved = false }
        run.enter(.ending, at: now)
        // A second request gives no more time.
        run.killAt = min(run.killAt ?? now + grace, now + grace)
        if fleetWatch.current.level == .critical { contain(run, isEnding: true) }
        // A throttled unit could not save in time, and would be killed with that state.
        if run.throttledSince != nil { letLoose(run) }
        try? run.group.thaw()
        if let peer = run.peer { channel.send(.ending(grace: grace), to: peer) }
        if let child = run.child { child.signal(SIGTERM) } else { try? run.group.send(SIGTERM) }
    }

    /// Contains further growth at the unit's own expense. On version 2, memory.high throttling slows the unit above the
    /// current charge. For an ending unit, the kernel's OOM killer acts in that group only, if usage grows much more.
    private func contain(_ run: UnitRun, isEnding: Bool) {
        guard let charge = run.group.charge else { return }
        // A group of another owner has that owner's limits.
        if case .group = run.unit.origin { return }
        let most = charge + .mebibytes(16),
            limit = isEnding ? min(run.unit.memoryLimit ?? .max, most) : run.unit.memoryLimit
        // Requires a guard that undoes the limits if this process is killed.
        guard (try? thawWatchdog.watch(run.group.ownLimits(run.unit.memoryLimit), .containment, of: run.group)) != nil
        else {
            return
        }
        run.isContained = true
        // Without memory.high or a limit, nothing changes.
        _ = try? run.group.setLimits(
            request: run.shares == nil ? run.unit.memoryRequest : nil, limit: limit, high: charge)
    }

    /// Ends the containment, because the unit continues to run or the group has another process.
    func letGrow(_ run: UnitRun) {
        guard run.isContained else { return }
        run.isContained = false
        shape(run)
        thawWatchdog.forget(.containment, of: run.group)
    }

    private func throttle(_ run: UnitRun) throws {
        let throttle = run.group.throttle(keepsOwn: run.unit.origin.isGroup)
        guard !throttle.set.isEmpty else { throw SupervisorError(run.group.whyNotThrottled) }
        run.throttle = throttle.lift
        // Register both before the unit is slow: after a crash, the guard or the next supervisor must lift the
        // throttle.
        try thawWatchdog.watch(throttle.lift, .throttle, of: run.group)
        note(run)
        try run.group.apply(throttle)
        run.throttledSince = now
    }

    /// Removes the throttle of the unit.
    func letLoose(_ run: UnitRun) {
        for limit in run.throttle { limit.lift() }
        (run.throttle, run.throttledSince) = ([], nil)
        thawWatchdog.forget(.throttle, of: run.group)
        note(run)
    }

    /// Kills all processes of the unit, and repeats while some remain. Without `cgroup.kill` in the kernel, a signal
    /// may miss some of them.
    func kill(_ run: UnitRun) {
        run.killAt = nil
        guard run.isAlive, !run.isObserved else { return }
        run.enter(.ending, at: now)
        run.killAt = now + .seconds(1)
        do {
            try run.group.killAll()
            run.isKillBlocked = false
        } catch {
            if !run.isKillBlocked { report(run.unit, "\(error)") }
            run.isKillBlocked = true
        }
        // The first process has a descriptor in any state of the group, and may have been moved to another group.
        run.child?.signal(SIGKILL)
    }

    // MARK: - Outcomes

    /// Completes the operation in progress.
    func completeOperation(of run: UnitRun, failure: String?) {
        guard let (_, decision, before) = run.underWay else { return }
        run.underWay = nil
        complete(decision, run, before, failure: failure)
    }

    private func complete(_ decision: Decision, _ run: UnitRun, _ before: ByteCount, failure: String?) {
        run.weigh()
        now = time.elapsed()
        let outcome = Outcome(decision, at: now, relief: max(.zero, before - run.charge), failure: failure)
        engine.learn(outcome)
        hasLearned = true
        let view = fleetWatch.current
        write(AuditRecord(outcome, level: view.level, shortfall: view.shortfall))
    }

    private func write(_ record: AuditRecord) {
        journal.write(record)
        for listener in supervisor.listeners.withLock({ $0 }) { listener(record) }
    }
}

/// A worker thread for slow kernel operations, such as memory reclaim. The supervisor does all other work itself, at
/// once.
final class ActionWorker: Sendable {
    private let jobs = Mutex<[@Sendable () -> Void]>([])
    private let isOver = Mutex(false)
    private let parker = Parker()

    /// - Throws: an error if no thread can be started.
    init() throws(SupervisorError) {
        guard
            Thread.start(
                "plimsoll-action",
                { [jobs = self.take, parker] in while let job = jobs() { if let job { job() } else { parker.park() } } }
            )
        else {
            throw SupervisorError(
                "cannot start a thread; check the limit of processes (pids.max, RLIMIT_NPROC)")
        }
    }

    func work(_ job: @escaping @Sendable () -> Void) {
        jobs.withLock { $0.append(job) }
        parker.unpark()
    }

    func stop() {
        isOver.withLock { $0 = true }
        parker.unpark()
    }

    /// Returns the next job: an inner `nil` if the queue is empty, an outer `nil` after `stop()`.
    @Sendable
    private func take() -> (@Sendable () -> Void)?? {
        if isOver.withLock({ $0 }) { return nil }
        return .some(jobs.withLock { $0.isEmpty ? nil : $0.removeFirst() })
    }
}

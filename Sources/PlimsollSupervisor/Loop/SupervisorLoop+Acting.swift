import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization

// What is decided is done.
extension SupervisorLoop {
    func carryOut(_ decision: Decision, _ fleet: Fleet) {
        write(AuditRecord(decision, level: fleet.level, shortfall: fleet.shortfall))
        guard !decision.isDryRun, !isDryRun else { return }
        guard let run = byName[decision.unit] else {
            return engine.learn(Outcome(decision, at: now, relief: .zero, failure: "there is no such unit any more"))
        }
        switch decision.action {
        case .warn, .release: break
        // Each decision has one outcome: what it replaces has come to nothing.
        default:
            settle(
                run,
                failure:
                    "it was not done in time, and is replaced by another decision: \(decision.action.kind.rawValue)")
        }
        let before = run.charge
        do {
            guard run.isAlive || decision.action == .start else { throw SupervisorError("it has ended") }
            if try act(decision, on: run, newID()) { return settle(decision, run, before, failure: nil) }
            run.underWay = (lastID, decision, before)
        } catch {
            settle(decision, run, before, failure: "\(error)")
        }
    }

    /// - Returns: whether it is done already.
    private func act(_ decision: Decision, on run: UnitRun, _ number: UInt64) throws -> Bool {
        switch decision.action {
        case .warn(let level):
            (run.told, run.toldAt) = (level, now)
            _ = run.pressure.announce(level)
            if let peer = run.peer { channel.send(.level(level), to: peer) }
        case .release(let bytes):
            if let peer = run.peer { channel.send(.release(bytes), to: peer) }
        case .background:
            run.enter(.leaving, at: now)
            lookForLocks(of: run)
            run.asksToStandSince = nil
            run.backgroundSince = run.backgroundSince ?? now
            if eyes.current.level == .critical { contain(run, isEnding: false) }
            if let peer = run.peer { channel.send(.background(deadline: options.policy.leaveTime), to: peer) }
        case .suspend:
            // Whoever stands still must be set free whatever becomes of this process (T32).
            guard warden.isAlive else {
                throw SupervisorError("there is no guard that would let it run again if this process were killed")
            }
            run.enter(.suspending, at: now)
            // Told anew: what is stopped by signals has no group that would say who is in it, and a group that was refused is not held yet.
            if run.group.suspension == .stop || !warden.isHolding(run.group) { try warden.watch(run.group) }
            try run.group.freeze()
            if run.group.suspension == .stop { try warden.watch(run.group) }
            guard run.group.isFrozen else { return false }
            run.enter(.suspended, at: now)
        case .resume(let reason): try resume(run, reason)
        case .pushOut(let bytes):
            let id = run.id, group = run.group, supervisor = supervisor, warden = warden
            hands.work {
                var failure: String?
                do { _ = try group.pushOut(bytes, guardian: warden) } catch { failure = "\(error)" }
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
            if run.state == .stopped { throw SupervisorError("it could not be started") }
        }
        return true
    }

    private func resume(_ run: UnitRun, _ reason: UnitAction.ResumeReason) throws {
        try run.group.thaw()
        run.lastAlive = now
        if reason != .ending { letGrow(run) }
        if run.state != .ending { run.goOn(at: now) }
        run.isSaved = false
        switch reason {
        case .keepAlive: run.lastWoken = now
        case .room, .asked:
            // It says anew when it is ready.
            run.isReady = false
            if let peer = run.peer { channel.send(.resume, to: peer) }
            if run.unit.role == .foreground { run.backgroundSince = nil }
        case .ending: break
        }
    }

    /// Asks it to end, and kills it later if it hasn't.
    func askToEnd(_ run: UnitRun, _ grace: Duration) {
        guard run.isAlive, !run.isObserved else { return }
        run.isEndedByUs = true
        run.enter(.ending, at: now)
        // Asked twice, it has no more time for that.
        run.killAt = min(run.killAt ?? now + grace, now + grace)
        if eyes.current.level == .critical { contain(run, isEnding: true) }
        try? run.group.thaw()
        if let peer = run.peer { channel.send(.ending(grace: grace), to: peer) }
        if let child = run.child { child.signal(SIGTERM) } else { try? run.group.send(SIGTERM) }
    }

    /// What it takes from now on is its own loss and nobody else's: on version 2 it is slowed down when it takes more than it has; when it is to end, the kernel
    /// kills there, and nowhere else, if it takes much more.
    private func contain(_ run: UnitRun, isEnding: Bool) {
        guard let charge = run.group.charge else { return }
        // Another's group has its owner's limits.
        if case .group = run.unit.origin { return }
        let most = charge + .mebibytes(16),
            limit = isEnding ? min(run.unit.memoryLimit ?? .max, most) : run.unit.memoryLimit
        // Not without somebody who takes it back, should this process be killed.
        guard (try? warden.watch(run.group.ownLimits(run.unit.memoryLimit), .containment, of: run.group)) != nil else {
            return
        }
        run.isContained = true
        // Without a brake or a limit it is as before.
        _ = try? run.group.setLimits(
            request: run.shares == nil ? run.unit.memoryRequest : nil, limit: limit, high: charge)
    }

    /// The end of that: it runs on, or its group has another process.
    func letGrow(_ run: UnitRun) {
        guard run.isContained else { return }
        run.isContained = false
        shape(run)
        warden.forget(.containment, of: run.group)
    }

    private func throttle(_ run: UnitRun) throws {
        let throttle = run.group.throttle(keepsOwn: run.unit.origin.isGroup)
        guard !throttle.set.isEmpty else { throw SupervisorError(run.group.whyNotThrottled) }
        run.throttle = throttle.lift
        // Both before it is slow: neither the guard nor the next supervisor is to leave it so.
        try warden.watch(throttle.lift, .throttle, of: run.group)
        note(run)
        try run.group.apply(throttle)
        run.throttledSince = now
    }

    /// Takes its throttle away.
    func letLoose(_ run: UnitRun) {
        for limit in run.throttle { limit.lift() }
        (run.throttle, run.throttledSince) = ([], nil)
        warden.forget(.throttle, of: run.group)
        note(run)
    }

    /// Kills it as it stands, and again as long as it is there: where the kernel has no `cgroup.kill`, a signal may not have reached everybody.
    func kill(_ run: UnitRun) {
        run.killAt = nil
        guard run.isAlive, !run.isObserved else { return }
        run.enter(.ending, at: now)
        run.killAt = now + .seconds(1)
        do {
            try run.group.killAll()
            run.isKillBlocked = false
        } catch {
            // Its first process is known by a descriptor, whatever has become of its group.
            run.child?.signal(SIGKILL)
            if !run.isKillBlocked { report(run.unit, "\(error)") }
            run.isKillBlocked = true
        }
    }

    // MARK: - What comes of it

    /// What was under way has come to its end.
    func settle(_ run: UnitRun, failure: String?) {
        guard let (_, decision, before) = run.underWay else { return }
        run.underWay = nil
        settle(decision, run, before, failure: failure)
    }

    private func settle(_ decision: Decision, _ run: UnitRun, _ before: ByteCount, failure: String?) {
        run.weigh()
        now = time.elapsed()
        let outcome = Outcome(decision, at: now, relief: max(.zero, before - run.charge), failure: failure)
        engine.learn(outcome)
        hasLearned = true
        let view = eyes.current
        write(AuditRecord(outcome, level: view.level, shortfall: view.shortfall))
    }

    private func write(_ record: AuditRecord) {
        journal.write(record)
        for listener in supervisor.listeners.withLock({ $0 }) { listener(record) }
    }
}

import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization

// What is decided is done.
extension SupervisorLoop {
    func carryOut(_ decision: Decision, _ fleet: Fleet) {
        write(AuditRecord(decision, level: fleet.level, shortfall: fleet.shortfall))
        guard !decision.isDryRun, let run = byName[decision.unit] else { return }
        // It is replaced where something comes of it only later.
        let before = run.charge
        do {
            if try act(decision, on: run) { return settle(decision, run, before, failure: nil) }
            run.underWay = (decision, before)
        } catch {
            settle(decision, run, before, failure: "\(error)")
        }
    }

    /// - Returns: whether it is done already.
    private func act(_ decision: Decision, on run: UnitRun) throws -> Bool {
        switch decision.action {
        case .warn(let level):
            (run.told, run.toldAt) = (level, now)
            _ = run.pressure.announce(level)
            if let peer = run.peer { channel.send(.level(level), to: peer) }
        case .release(let bytes):
            if let peer = run.peer { channel.send(.release(bytes), to: peer) }
        case .background:
            run.enter(.leaving, at: now)
            run.backgroundSince = run.backgroundSince ?? now
            if eyes.current.level == .critical { contain(run, isEnding: false) }
            if let peer = run.peer { channel.send(.background(deadline: options.policy.leaveTime), to: peer) }
        case .suspend:
            run.enter(.suspending, at: now)
            // Told anew: what is stopped by signals has no group that would say who is in it.
            if run.group.suspension == .stop { try warden.watch(run.group) }
            try run.group.freeze()
            if run.group.suspension == .stop { try warden.watch(run.group) }
            guard run.group.isFrozen else { return false }
            run.enter(.suspended, at: now)
        case .resume(let reason): try resume(run, reason)
        case .pushOut(let bytes):
            let id = run.id, group = run.group, supervisor = supervisor
            hands.work {
                var failure: String?
                do { _ = try group.pushOut(bytes) } catch { failure = "\(error)" }
                supervisor.ask(.outcome(id, failure: failure))
            }
            return false
        case .throttle(let on):
            if let reason = try run.group.throttle(on) { throw SupervisorError(reason) }
            run.throttledSince = on ? now : nil
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
        if reason != .ending { shape(run) }
        if run.state != .ending { run.enter(.running, at: now) }
        run.isSaved = false
        switch reason {
        case .keepAlive: run.lastWoken = now
        case .room, .asked:
            if let peer = run.peer { channel.send(.resume, to: peer) }
            if run.unit.role == .foreground { run.backgroundSince = nil }
        case .ending: break
        }
    }

    /// Asks it to end, and kills it later if it hasn't.
    func askToEnd(_ run: UnitRun, _ grace: Duration) {
        guard run.isAlive else { return }
        run.isEndedByUs = true
        run.enter(.ending, at: now)
        run.killAt = now + grace
        if eyes.current.level == .critical { contain(run, isEnding: true) }
        try? run.group.thaw()
        if let peer = run.peer { channel.send(.ending(grace: grace), to: peer) }
        if let child = run.child { child.signal(SIGTERM) } else { try? run.group.send(SIGTERM) }
    }

    /// What it takes from now on is its own loss and nobody else's: on version 2 it is slowed down when it takes more than it has; when it is to end, the kernel
    /// kills there, and nowhere else, if it takes much more.
    private func contain(_ run: UnitRun, isEnding: Bool) {
        guard let charge = run.group.charge else { return }
        let most = charge + .mebibytes(16), limit = isEnding ? min(run.unit.memoryLimit ?? .max, most) : run.unit.memoryLimit
        // Without a brake or a limit it is as before.
        _ = try? run.group.setLimits(request: run.unit.memoryRequest, limit: limit, high: charge)
    }

    /// Kills it as it stands.
    func kill(_ run: UnitRun) {
        run.killAt = nil
        guard run.isAlive else { return }
        run.enter(.ending, at: now)
        do { try run.group.killAll() } catch { run.child?.signal(SIGKILL) }
    }

    // MARK: - What comes of it

    /// What was under way has come to its end.
    func settle(_ run: UnitRun, failure: String?) {
        guard let (decision, before) = run.underWay else { return }
        run.underWay = nil
        settle(decision, run, before, failure: failure)
    }

    private func settle(_ decision: Decision, _ run: UnitRun, _ before: ByteCount, failure: String?) {
        run.weigh()
        now = time.elapsed()
        let outcome = Outcome(decision, at: now, relief: max(.zero, before - run.charge), failure: failure)
        engine.learn(outcome)
        let view = eyes.current
        write(AuditRecord(outcome, level: view.level, shortfall: view.shortfall))
    }

    private func write(_ record: AuditRecord) {
        journal.write(record)
        for listener in supervisor.listeners.withLock({ $0 }) { listener(record) }
    }
}

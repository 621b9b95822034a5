import Glibc
import Plimsoll
import PlimsollLinux

// What units, the kernel and the guard say.
extension SupervisorLoop {
    func hear(_ token: EventQueue.Token) {
        switch token {
        case Token.notices:
            // What is left keeps the socket readable: nobody holds this thread by saying much.
            for _ in 0..<64 {
                guard let notice = notices.receive() else { return }
                take(notice)
            }
        case Token.channel: for event in channel.turn(at: now) { take(event) }
        case Token.warden: replaceWarden()
        default:
            guard let run = runs[token >> 2] else { return }
            switch token & 3 {
            case Token.child: childEnded(run)
            case Token.events: groupChanged(run)
            default: run.pressure.turn()
            }
        }
    }

    /// The unit that a process belongs to.
    func unit(of process: Int32) -> UnitRun? {
        if let run = byProcess[process] { return run }
        // Not a unit's first process: rare, and asked once a connection.
        return runs.values.first { $0.isAlive && $0.group.processes.contains(process) }
    }

    // MARK: - Units

    private func take(_ event: ChannelServer.Event) {
        switch event {
        case .opened(let peer):
            guard let run = byName[peer.unit] else { return }
            // The last one to come speaks for it.
            run.peer = peer.id
            if run.told > .normal { channel.send(.level(run.told), to: peer.id) }
        case .closed(let peer, _):
            guard let run = byName[peer.unit], run.peer == peer.id else { return }
            // What it has said may not be so any more.
            (run.peer, run.tokens, run.tokensEnd, run.isReady, run.isSaved, run.saysLocks) = (nil, 0, nil, false, false, false)
        case .message(let peer, let message, let number):
            guard let run = byName[peer.unit], run.isAlive else { return }
            // The one that spoke for it has gone, another of its processes is still there.
            run.peer = run.peer ?? peer.id
            guard run.peer == peer.id else { return }
            take(message, of: run, number)
        }
    }

    private func take(_ message: ChildMessage, of run: UnitRun, _ number: UInt64) {
        switch message {
        case .hello, .caches, .bye: break
        case .state(let state):
            run.isReady = state == .suspendedReady
            run.backgroundSince = state == .foreground ? nil : run.backgroundSince ?? now
            // It has come back by itself.
            if state == .foreground, run.state == .leaving {
                letGrow(run)
                run.lastAlive = now
                run.enter(.running, at: now)
            }
        case .tasks(let count, let until): (run.tokens, run.tokensEnd) = (count, until.map { now + $0 })
        case .saved(let isSaved): run.isSaved = isSaved
        case .locks(let areHeld): run.saysLocks = areHeld
        case .keepAlive(let interval):
            // Its owner says how often at most; a unit whose owner says nothing is not woken (C33).
            let isGranted = interval == .zero || (run.unit.keepAlive.map { interval >= $0 } ?? false) && interval >= options.policy.keepAliveInterval
            if isGranted { run.keepAlive = interval == .zero ? nil : interval }
            if let peer = run.peer { channel.send(.keepAlive(answerTo: number, accepted: isGranted), to: peer) }
        }
    }

    private func take(_ notice: NotifySocket.Notice) {
        guard let run = unit(of: notice.sender.process) else { return }
        let message = notice.message
        if message.isReady, run.state == .starting { run.enter(.running, at: now) }
        if let status = message.status { run.status = status }
        if let interval = message.watchdogInterval { (run.watchdog, run.lastAlive) = (interval > .zero ? interval : nil, now) }
        if message.isAlive { run.lastAlive = now }
        if message.triggersWatchdog { kill(run) }
        if let extra = message.timeoutExtension, let killAt = run.killAt {
            // As long as it says that it gets on, but not for ever.
            run.killAt = max(killAt, min(now + extra, run.since + options.policy.grace + options.policy.graceExtension))
        }
    }

    // MARK: - The kernel

    private func childEnded(_ run: UnitRun) {
        guard let child = run.child, let ending = child.ending else { return }
        supervisor.queue.unwatch(child.descriptor)
        byProcess[child.pid] = nil
        run.child = nil
        // Of one that was taken over it isn't known: rather once too often than a service that is missing.
        if !run.isEndedByUs { planRestart(run, isFailure: ending != .exited(0)) }
        // What its first process leaves behind ends with it.
        if !run.group.isEmpty { kill(run) }
        groupChanged(run)
    }

    /// It stands still, or nobody is left in it.
    func groupChanged(_ run: UnitRun) {
        // Read in any case: the file stays ready until it is.
        let isEmpty = run.group.isEmpty
        if !run.isGroupGone, (try? run.group.check(for: .thaw)) == nil {
            // A removed group's file is ready for ever.
            run.isGroupGone = true
            if run.group.eventsFile >= 0 { supervisor.queue.unwatch(run.group.eventsFile) }
            report(run.unit, "its group is not there any more, or another has its place")
        }
        if run.child == nil, run.isAlive, isEmpty { return ended(run) }
        // Somebody else started it again.
        if !run.isOurs, run.state == .stopped, !isEmpty, !run.isLeaving, !isStopping { return began(run) }
        guard run.state == .suspending, run.group.isFrozen else { return }
        run.enter(.suspended, at: now)
        run.weigh()
        settle(run, failure: nil)
    }

    /// Nothing of it runs any more.
    private func ended(_ run: UnitRun) {
        setFree(run)
        run.killAt = nil
        letGrow(run)
        run.enter(.stopped, at: now)
        run.weigh()
        run.forgetWords()
        // Whoever comes next hears of a level when it is told.
        _ = run.pressure.announce(.normal)
        settle(run, failure: run.underWay?.decision.action == .suspend ? "it has ended" : nil)
        if run.isLeaving || isStopping && !options.leavesUnits { forget(run) }
    }

    func replaceWarden() {
        if warden.descriptor >= 0 { supervisor.queue.unwatch(warden.descriptor) }
        // Without one, units would stay frozen if this process were killed; it is made anew at once, or else as soon as that works.
        do {
            try warden.restart()
            wardenDue = nil
        } catch {
            if wardenDue == nil { supervisor.tell("the guard can't be started again, so nobody is suspended: \(error)") }
            wardenDue = now + .seconds(1)
        }
        if warden.descriptor >= 0 { supervisor.queue.watch(warden.descriptor, for: .readable, Token.warden) }
    }
}

import Glibc
import Plimsoll
import PlimsollLinux

// What units, the kernel and the guard say.
extension SupervisorLoop {
    func hear(_ token: EventQueue.Token) {
        switch token {
        case Token.notices: hearNotices()
        case Token.channel: for event in channel.turn(at: now) { take(event) }
        case Token.warden: replaceWarden()
        default:
            guard let run = runs[token >> 2] else { return }
            switch token & 3 {
            case Token.child: childEnded(run)
            case Token.events: groupChanged(run)
            case Token.speech: hearNotices(of: run)
            default:
                run.pressure.turn()
                if run.pressure.isBlocked { rest(token, run.pressure.file) }
            }
        }
    }

    /// Who may hear what a unit is told: its own processes, and who could as well ask the supervisor.
    func hears(_ process: Int32, _ user: UInt32, of unit: String) -> Bool {
        user == 0 || user == geteuid() || self.unit(of: process, user: user)?.unit.name == unit
    }

    // MARK: - Units

    /// Whether its word that nothing would be lost is its last one: whoever stands still says nothing more, and is killed for it only once all was heard.
    func isSaved(_ run: UnitRun) -> Bool {
        guard run.isSaved, let peer = run.peer else { return false }
        guard channel.hasUnheard(peer) else { return true }
        for event in channel.turn(at: now) { take(event) }
        return run.isSaved && run.peer == peer && !channel.hasUnheard(peer)
    }

    private func take(_ event: ChannelServer.Event) {
        switch event {
        case .opened(let peer):
            guard let run = byName[peer.unit], peer.id > run.speech.peersBefore else { return }
            // A newer link speaks for the unit when the older one has closed, and not before.
            run.speech.add(peer.id)
            if run.peer == nil { heedNextLink(of: run) }
        case .closed(let peer, _):
            guard let run = byName[peer.unit] else { return }
            run.speech.remove(peer.id)
            guard run.peer == peer.id else { return }
            // What it has said may not be so any more.
            (run.peer, run.tokens, run.tokensEnd, run.isReady, run.isSaved, run.saysLocks) = (
                nil, 0, nil, false, false, false
            )
            run.asksToStandSince = nil
            heedNextLink(of: run)
        case .message(let peer, let message, let number):
            guard let run = byName[peer.unit], run.isAlive, peer.id > run.speech.peersBefore else { return }
            if run.peer == peer.id { return take(message, of: run, number) }
            guard run.speech.note(message, number, of: peer.id) else { return }
            // An answer can't wait for another process to end.
            if case .keepAlive = message { channel.send(.keepAlive(answerTo: number, accepted: false), to: peer.id) }
        }
    }

    /// The link that has waited longest speaks for the unit from now on; what it has said before holds.
    private func heedNextLink(of run: UnitRun) {
        guard let (peer, words) = run.speech.takeNext() else { return }
        run.peer = peer
        if run.told > .normal { channel.send(.level(run.told), to: peer) }
        guard run.isAlive else { return }
        for (message, number) in words {
            // Answered already.
            if case .keepAlive = message { continue }
            take(message, of: run, number)
        }
    }

    private func take(_ message: ChildMessage, of run: UnitRun, _ number: UInt64) {
        switch message {
        case .hello, .caches, .bye: break
        case .state(let state):
            if state == .suspendedReady, !run.isReady { run.locks.becameReady(at: now) }
            run.isReady = state == .suspendedReady
            run.backgroundSince = state == .foreground ? nil : run.backgroundSince ?? now
            // It has come back by itself.
            if state == .foreground, run.state == .leaving {
                letGrow(run)
                run.lastAlive = now
                run.goOn(at: now)
            }
        case .tasks(let count, let until): (run.tokens, run.tokensEnd) = (count, until.map { now + $0 })
        case .suspend: run.asksToStandSince = now
        case .saved(let isSaved): run.isSaved = isSaved
        case .locks(let areHeld): run.saysLocks = areHeld
        case .keepAlive(let interval):
            // Its owner says how often at most; a unit whose owner says nothing is not woken (C33).
            let isGranted =
                interval == .zero
                || (run.unit.keepAlive.map { interval >= $0 } ?? false) && interval >= options.policy.keepAliveInterval
            if isGranted { run.keepAlive = interval == .zero ? nil : interval }
            if let peer = run.peer { channel.send(.keepAlive(answerTo: number, accepted: isGranted), to: peer) }
        }
    }

    // MARK: - The kernel

    private func childEnded(_ run: UnitRun) {
        // What it said before it ended may still lie there: that another is the main one now.
        hearOut(run)
        dropFormers(of: run)
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
        if run.isObserved { return seeStandstill(run) }
        guard run.state == .suspending, run.group.isFrozen else { return }
        run.enter(.suspended, at: now)
        run.weigh()
        settle(run, failure: nil)
    }

    /// Nothing of it runs any more.
    private func ended(_ run: UnitRun) {
        dropFormers(of: run)
        setFree(run)
        (run.killAt, run.startBy) = (nil, nil)
        letGrow(run)
        run.enter(.stopped, at: now)
        run.weigh()
        run.forgetWords()
        run.speech.forget(upTo: channel.lastID)
        // Whoever comes next hears of a level when it is told.
        _ = run.pressure.announce(.normal)
        settle(run, failure: run.underWay?.decision.action == .suspend ? "it has ended" : nil)
        let stops = isStopping && !options.leavesUnits
        if run.isLeaving || stops { forget(run) }
        if stops { stopNext() }
    }

    func replaceWarden() {
        if warden.descriptor >= 0 { supervisor.queue.unwatch(warden.descriptor) }
        // Without one, units would stay frozen if this process were killed; it is made anew at once, or else as soon as that works.
        do {
            try warden.restart()
            wardenDue = nil
        } catch {
            if wardenDue == nil {
                supervisor.tell("the guard can't be started again, so nobody is suspended: \(error)")
            }
            wardenDue = now + .seconds(1)
        }
        watchedWarden = (0, -1)
        watchWarden()
    }

    /// A guard that did not answer has been replaced by another.
    func watchWarden() {
        guard watchedWarden.pid != warden.pid, warden.descriptor >= 0 else { return }
        // The former one's is closed.
        supervisor.queue.forget(watchedWarden.file)
        watchedWarden = (warden.pid, warden.descriptor)
        supervisor.queue.watch(watchedWarden.file, for: .readable, Token.warden)
    }
}

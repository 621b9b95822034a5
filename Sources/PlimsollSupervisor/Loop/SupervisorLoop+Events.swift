import Glibc
import Plimsoll
import PlimsollLinux

// Messages from units, the kernel and the guard.
extension SupervisorLoop {
    func handle(_ token: EventQueue.Token) {
        switch token {
        case Token.notices: receiveNotices()
        case Token.channel: for event in channel.turn(at: now) { take(event) }
        case Token.thawWatchdog: replaceThawWatchdog()
        default:
            guard let run = runs[token >> 2] else { return }
            switch token & 3 {
            case Token.child: childEnded(run)
            case Token.events: groupChanged(run)
            case Token.messages: receiveNotices(of: run)
            default:
                run.pressure.turn()
                if run.pressure.isBlocked { rest(token, run.pressure.file) }
            }
        }
    }

    /// Returns true if a process may receive notices for a unit. These are the unit's own processes, and processes that
    /// could ask the supervisor anyway.
    func mayReceive(_ process: Int32, _ user: UInt32, of unit: String) -> Bool {
        user == 0 || user == geteuid() || self.unit(of: process, user: user)?.unit.name == unit
    }

    // MARK: - Units

    /// Returns true if the unit's last message says that nothing would be lost. A frozen or ending unit is killed on
    /// that word only after all pending messages are read: a later one may take the word back.
    func isSaved(_ run: UnitRun) -> Bool {
        guard run.isSaved, let peer = run.peer else { return false }
        guard channel.hasUnread(peer) else { return true }
        for event in channel.turn(at: now) { take(event) }
        return run.isSaved && run.peer == peer && !channel.hasUnread(peer)
    }

    private func take(_ event: ChannelServer.Event) {
        switch event {
        case .opened(let peer):
            guard let run = byName[peer.unit], peer.id > run.messages.peersBefore else { return }
            // A newer link represents the unit only after the older one has closed.
            run.messages.add(peer.id)
            if run.peer == nil { useNextLink(of: run) }
        case .closed(let peer, _):
            guard let run = byName[peer.unit] else { return }
            run.messages.remove(peer.id)
            guard run.peer == peer.id else { return }
            // The statements of a closed link may no longer be true.
            run.forgetLink()
            useNextLink(of: run)
            // Without a link no message would ever end the background. A service that was ordered there comes back. One
            // that went by itself counts as in front until a link says otherwise.
            if run.peer == nil, run.unit.role == .foreground, run.state == .running { run.backgroundSince = nil }
        case .message(let peer, let message, let number):
            guard let run = byName[peer.unit], run.isAlive, peer.id > run.messages.peersBefore else { return }
            if run.peer == peer.id { return take(message, of: run, number, said: now) }
            guard run.messages.note(message, number, of: peer.id, at: now) else { return }
            // This request needs an answer now and can't wait for another process to end.
            if case .keepAlive = message { channel.send(.keepAlive(answerTo: number, accepted: false), to: peer.id) }
        }
    }

    /// Makes the longest-waiting link represent the unit. Messages sent before stay valid.
    private func useNextLink(of run: UnitRun) {
        guard let (peer, messages) = run.messages.takeNext() else { return }
        run.peer = peer
        if run.notified > .normal { channel.send(.level(run.notified), to: peer) }
        guard run.isAlive else { return }
        for (message, number, at) in messages {
            // Already answered.
            if case .keepAlive = message { continue }
            take(message, of: run, number, said: min(at, now))
        }
    }

    /// - Parameter said: the time at which the message arrived. A waiting link's messages count from then on.
    private func take(_ message: ChildMessage, of run: UnitRun, _ number: UInt64, said: Duration) {
        switch message {
        case .hello, .caches, .bye: break
        case .worth(let offer):
            run.weigh()
            run.worth = (offer, now)
        case .state(let state):
            if state == .suspendedReady, !run.isReady { run.locks.becameReady(at: now) }
            run.isReady = state == .suspendedReady
            run.backgroundSince = state == .foreground ? nil : run.backgroundSince ?? now
            // The unit returned to the foreground by itself, or said so just before it got the order to leave. In the
            // latter case the unit would follow an order that no longer holds, and nobody would call the unit back.
            if state == .foreground, run.state == .leaving {
                letGrow(run)
                run.goOn(at: now)
                if let peer = run.peer { channel.send(.resume, to: peer) }
            }
        case .tasks(let count, let until): (run.tokens, run.tokensEnd) = (count, until.map { said + $0 })
        case .suspend: run.suspensionRequestedAt = said
        case .saved(let isSaved): run.isSaved = isSaved
        case .locks(let areHeld): run.saysLocks = areHeld
        case .keepAlive(let interval):
            // The owner sets the minimum interval. Without a setting from the owner, a unit is not woken (C33).
            let isGranted =
                interval == .zero
                || (run.unit.keepAlive.map { interval >= $0 } ?? false) && interval >= options.policy.keepAliveInterval
            if isGranted { run.keepAlive = interval == .zero ? nil : interval }
            if let peer = run.peer { channel.send(.keepAlive(answerTo: number, accepted: isGranted), to: peer) }
        }
    }

    // MARK: - Kernel events

    private func childEnded(_ run: UnitRun) {
        // Messages sent before the end may still be unread, such as one that names another main process.
        receivePending(run)
        dropFormers(of: run)
        guard let child = run.child, let ending = child.ending else { return }
        supervisor.queue.unwatch(child.descriptor)
        byProcess[child.pid] = nil
        run.child = nil
        // The exit status of an adopted process is unknown: better one restart too many than a missing service.
        if !run.isEndedByUs { planRestart(run, isFailure: ending != .exited(0)) }
        // Processes left behind by the main process end with that process.
        if !run.group.isEmpty { kill(run) }
        groupChanged(run)
    }

    /// Handles a change of the group: frozen, or no process left.
    func groupChanged(_ run: UnitRun) {
        // Always read: the file stays ready until read.
        var isEmpty = run.group.isEmpty
        if !run.isGroupGone, (try? run.group.check(for: .thaw)) == nil {
            // The file of a removed group is ready for ever.
            run.isGroupGone = true
            if run.group.eventsFile >= 0 { supervisor.queue.unwatch(run.group.eventsFile) }
            report(run.unit, "the group was removed, or another has its path")
            // No event follows, and the processes may have ended since the first look.
            isEmpty = run.group.isEmpty
        }
        if run.isGroupGone, isEmpty, run.unit.origin.isGroup { return takeUpAgain(run) }
        if run.child == nil, run.isAlive, isEmpty {
            // Nothing else tells that such a unit has ended.
            if run.isMainUnknown, !run.isEndedByUs { planRestart(run, isFailure: true) }
            return ended(run)
        }
        // Another party started the unit again.
        if !run.isOurs, run.state == .stopped, !isEmpty, !run.isLeaving, !isStopping { return began(run) }
        if run.isObserved { return followFreezer(run) }
        noteThaw(of: run)
        guard run.state == .suspending, run.group.isFrozen else { return }
        run.enter(.suspended, at: now)
        run.weigh()
        completeOperation(of: run, failure: nil)
    }

    /// Follows another party that has thawed a suspended unit. The unit works again, so its word that nothing would be
    /// lost no longer holds.
    func noteThaw(of run: UnitRun) {
        guard run.state == .suspended, !run.isObserved, run.group.isThawed else { return }
        // The rest of a unit that is stopped by signals.
        try? run.group.thaw()
        resumed(run, .room)
        run.weigh()
    }

    /// Waits for the owner to make the unit's group again, as systemd does at each start of a service.
    private func takeUpAgain(_ run: UnitRun) {
        (run.isLeaving, run.successor) = (true, run.unit)
        if run.isAlive { ended(run) } else { forget(run) }
    }

    /// Handles the end of the unit's last process.
    private func ended(_ run: UnitRun) {
        dropFormers(of: run)
        setFree(run)
        (run.killAt, run.startBy) = (nil, nil)
        run.enter(.stopped, at: now)
        run.weigh()
        run.forgetMessages()
        run.messages.forget(upTo: channel.lastID)
        // The next process learns of a level by a new notice.
        _ = run.pressure.announce(.normal)
        completeOperation(of: run, failure: run.underWay?.decision.action == .suspend ? "the unit has ended" : nil)
        let stops = isStopping && !options.leavesUnits
        // The note names no process until another one runs. If this supervisor were killed just after a start, the next
        // supervisor would otherwise kill the new process as left behind.
        if run.isLeaving || stops { forget(run) } else if run.isOurs { note(run) }
        if stops { stopNext() }
    }

    func replaceThawWatchdog() {
        if thawWatchdog.descriptor >= 0 { supervisor.queue.unwatch(thawWatchdog.descriptor) }
        // Without a guard, units would stay frozen if this process were killed. The guard is restarted at once, or as
        // soon as possible.
        do {
            try thawWatchdog.restart()
            watchdogDue = nil
        } catch {
            if watchdogDue == nil {
                supervisor.report("cannot restart the guard, so no unit is suspended: \(error)")
            }
            watchdogDue = now + .seconds(1)
        }
        watchedGuard = (0, -1)
        watchGuard()
    }

    /// Watches a guard that replaced an unresponsive one. Starts another one if that replacement could not be started.
    func watchGuard() {
        guard watchedGuard.pid != thawWatchdog.pid else { return }
        // The former guard's descriptor is closed.
        supervisor.queue.forget(watchedGuard.file)
        watchedGuard = (thawWatchdog.pid, thawWatchdog.descriptor)
        // No event reports a guard that never ran.
        guard watchedGuard.file >= 0 else { return replaceThawWatchdog() }
        supervisor.queue.watch(watchedGuard.file, for: .readable, Token.thawWatchdog)
    }
}

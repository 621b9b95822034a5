import Glibc
import Plimsoll

// What units say by sd_notify(3).
extension SupervisorLoop {
    func take(_ notice: NotifySocket.Notice, of run: UnitRun) {
        let message = notice.message, sender = notice.sender
        guard maySpeak(sender.process, user: sender.user, for: run) else {
            return refuse(sender.process, sender.user, of: run, "what is said")
        }
        learnUser(sender.user, of: sender.process, run)
        // Before anything is made of its end or its start: of the process that it means.
        if let process = message.mainProcess { follow(process, of: run) }
        if message.isReady, !run.isUp {
            run.isUp = true
            if run.state == .starting { run.goOn(at: now) }
        }
        if let status = message.status { run.status = status }
        if let interval = message.watchdogInterval {
            (run.watchdog, run.lastAlive) = (interval > .zero ? interval : nil, now)
        }
        if message.isAlive { run.lastAlive = now }
        if message.triggersWatchdog { kill(run) }
        keep(notice, of: run)
        if message.isStopping { stops(run) }
        guard let extra = message.timeoutExtension else { return }
        if run.state == .starting, let startBy = run.startBy { run.startBy = max(startBy, now + extra) }
        // As long as it says that it gets on, but not for ever.
        if let killAt = run.killAt {
            run.killAt = max(killAt, min(now + extra, run.since + options.policy.grace + options.policy.graceExtension))
        }
    }

    /// It ends by itself, and has the time for it that it would have if it had been asked: its memory is counted on.
    private func stops(_ run: UnitRun) {
        guard run.isOurs, [.starting, .running, .leaving].contains(run.state) else { return }
        run.enter(.ending, at: now)
        run.killAt = run.killAt ?? now + options.policy.grace
    }

    // MARK: - Another main process

    /// From now on the unit lasts as long as that process, if it is one of its own.
    private func follow(_ process: Int32, of run: UnitRun) {
        guard let child = run.child, child.pid != process, run.state != .ending else { return }
        let next: Child
        if let index = run.formers.firstIndex(where: { $0.pid == process }) {
            next = run.formers.remove(at: index)
        } else {
            // Held first, and looked for afterwards: so it is that process which is in the group, and none that had its number before (K38).
            guard run.formers.count < Self.mostFormers, let found = try? Child.adopt(process),
                run.group.processes.contains(process)
            else {
                return report(run.unit, "process \(process) is not followed as its main one: it is none of its own")
            }
            next = found
            supervisor.queue.watch(next.descriptor, for: .readable, Token.of(run.id, Token.child))
            byProcess[process] = run
        }
        // Still ours to be waited for.
        run.formers.append(child)
        run.child = next
        if run.isOurs { note(run) }
    }

    /// A program that goes on naming others is not followed any further.
    private static let mostFormers = 8

    /// Those that have ended are waited for and forgotten.
    func dropFormers(of run: UnitRun) {
        run.formers.removeAll { former in
            guard former.ending != nil else { return false }
            supervisor.queue.unwatch(former.descriptor)
            byProcess[former.pid] = nil
            return true
        }
    }
}

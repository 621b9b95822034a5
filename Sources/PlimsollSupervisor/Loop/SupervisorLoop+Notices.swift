import Glibc
import Plimsoll

// Messages from units by sd_notify(3).
extension SupervisorLoop {
    func take(_ notice: NotifySocket.Notice, of run: UnitRun) {
        let message = notice.message, sender = notice.sender
        guard maySend(sender.process, user: sender.user, for: run) else {
            return refuse(sender.process, sender.user, of: run, "a notification")
        }
        learnUser(sender.user, of: sender.process, run)
        // First, so that the end or start is applied to the right process.
        if let process = message.mainProcess { follow(process, of: run) }
        if message.isReady, !run.isUp { cameUp(run) }
        if let status = message.status { run.status = status }
        if let interval = message.watchdogInterval {
            (run.watchdog, run.lastAlive) = (interval > .zero ? interval : nil, now)
        }
        if message.isAlive { run.lastAlive = now }
        if message.triggersWatchdog { kill(run) }
        keep(notice, of: run)
        // A former main process that ends does not speak for its successor.
        if message.isStopping, !run.previousMainProcesses.contains(where: { $0.pid == sender.process }) { stops(run) }
        guard let extra = message.timeoutExtension else { return }
        if run.state == .starting, let startBy = run.startBy { run.startBy = max(startBy, now + extra) }
        // The unit may extend the time while it reports progress, up to a limit.
        if let killAt = run.killAt {
            let latest = run.since + options.policy.grace + options.policy.graceExtension
            run.killAt = max(killAt, min(now + extra, latest, lastTurn(of: run) ?? latest))
        }
    }

    /// Counts the unit as started.
    func cameUp(_ run: UnitRun) {
        run.isUp = true
        if run.state == .starting { run.goOn(at: now) }
        // The note of an ending unit may be kept for the next supervisor.
        if run.state != .ending { note(run) }
    }

    /// Handles a unit that ends by itself. The unit gets the same time as after a request, and its memory counts as
    /// expected relief.
    private func stops(_ run: UnitRun) {
        guard run.isOurs, [.starting, .running, .leaving].contains(run.state) else { return }
        run.enter(.ending, at: now)
        run.killAt = run.killAt ?? now + options.policy.grace
        if run.throttledSince != nil { letLoose(run) }
    }

    // MARK: - Change of the main process

    /// Ties the unit's lifetime to `process`, if the process belongs to the unit.
    private func follow(_ process: Int32, of run: UnitRun) {
        guard let child = run.child, child.pid != process, run.state != .ending else { return }
        let next: Child
        if let index = run.previousMainProcesses.firstIndex(where: { $0.pid == process }) {
            next = run.previousMainProcesses.remove(at: index)
        } else {
            // Open the descriptor first and look up the group afterwards. So the process in the group is this one, not
            // one with a reused number (K38).
            guard run.previousMainProcesses.count < Self.mostFormers, let found = try? Child.adopt(process),
                run.group.processes.contains(process)
            else {
                return report(run.unit, "ignored process \(process) as main process: it is not a process of the unit")
            }
            next = found
            supervisor.queue.watch(next.descriptor, for: .readable, Token.of(run.id, Token.child))
            byProcess[process] = run
        }
        // The supervisor must still wait for the former process.
        run.previousMainProcesses.append(child)
        run.child = next
        if run.isOurs { note(run) }
    }

    /// The maximum number of former processes. A program that names more main processes is not followed further.
    private static let mostFormers = 8

    /// Reaps former processes that have ended.
    func dropFormers(of run: UnitRun) {
        run.previousMainProcesses.removeAll { former in
            guard former.ending != nil else { return false }
            supervisor.queue.unwatch(former.descriptor)
            byProcess[former.pid] = nil
            return true
        }
    }
}

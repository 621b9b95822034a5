import Glibc
import Plimsoll
import PlimsollLinux

// The end and removal of units.
extension SupervisorLoop {
    /// Removes a unit. A unit that ran before the supervisor keeps running, since its end was not requested.
    func dismiss(_ run: UnitRun, within grace: Duration) {
        run.isLeaving = true
        run.startAt = nil
        if run.isAlive, run.isOurs { askToEnd(run, grace) } else { forget(run) }
    }

    func stop() {
        guard !isStopping else { return }
        isStopping = true
        // No unit arrives any more.
        (postponed, arrivals) = ([:], [])
        if options.leavesUnits { return }
        stopBy = now + options.policy.grace
        for run in runs.values {
            run.successor = nil
            if !run.isAlive || !run.isOurs { dismiss(run, within: .zero) }
        }
        stopTurn = options.policy.grace / StopOrder.turns(living)
        stopNext()
    }

    /// Asks units to end that no other living unit depends on.
    func stopNext() {
        let next = StopOrder.next(living)
        for run in runs.values where next.contains(run.unit.name) {
            if !run.isLeaving {
                dismiss(run, within: stopTurn)
            } else if let killAt = run.killAt {
                // A unit that a reload removed before the stop also leaves the units that this one needs their turns.
                // More time that was granted during the stop stays granted.
                run.killAt = min(killAt, max(now + stopTurn, lastTurn(of: run) ?? killAt))
            }
        }
    }

    /// Returns the time by which a unit must end during the stop, so that the units that this one needs are asked as
    /// well, and not only killed when the whole time is over. Returns `nil` if the supervisor isn't stopping.
    func lastTurn(of run: UnitRun) -> Duration? {
        stopBy.map { $0 - stopTurn * StopOrder.turns(after: run.unit.name, living) }
    }

    /// The living units by name, each with its dependencies.
    private var living: [String: [String]] {
        Dictionary(runs.values.lazy.filter(\.isAlive).map { ($0.unit.name, $0.unit.dependencies) }) { first, _ in first
        }
    }

    /// Removes the unit for good, with everything made for it.
    func forget(_ run: UnitRun) {
        completeOperation(of: run, failure: "the unit was removed from the units file")
        setFree(run)
        letGo(run)
        // A unit that runs on keeps the group it was put into.
        var isGone = true
        if run.isOurs || run.group.isEmpty {
            do { try run.group.remove() } catch {
                report(run.unit, "\(error)")
                isGone = !run.isOurs
            }
        }
        // Last: if this supervisor is killed before, the note tells the next one about the remaining groups.
        if isGone { ProcessNote(directory, run.unit.name).remove() }
        // After all traces of this unit are gone: both have the same paths.
        if let successor = run.successor { arrivals.append(successor) }
    }

    /// Stops tracking the unit. The group and its processes stay as they are.
    func letGo(_ run: UnitRun) {
        unwatch(run)
        if !run.isObserved { thawWatchdog.forget(run.group) }
        runs[run.id] = nil
        if byName[run.unit.name] === run { byName[run.unit.name] = nil }
    }

    /// Undoes all restrictions on the unit.
    func setFree(_ run: UnitRun) {
        guard !run.isObserved else { return }
        try? run.group.thaw()
        // The group outlives the processes: the next process would be slow for no reason.
        if run.throttledSince != nil { letLoose(run) }
        setShares(of: run, isBehind: false)
        letGrow(run)
    }

    func unwatch(_ run: UnitRun) {
        supervisor.queue.unwatch(run.pressure.file)
        closeSockets(of: run)
        if run.group.eventsFile >= 0 { supervisor.queue.unwatch(run.group.eventsFile) }
        for child in run.previousMainProcesses + (run.child.map { [$0] } ?? []) {
            supervisor.queue.unwatch(child.descriptor)
            byProcess[child.pid] = nil
        }
    }

    /// Gives up on units that survive even SIGKILL, for example because of a disk that doesn't answer.
    func abandon() {
        stopBy = nil
        for run in runs.values {
            report(run.unit, "could not be ended, and is left unchanged")
            completeOperation(of: run, failure: "the unit did not end")
            unwatch(run)
        }
        runs = [:]
    }
}
